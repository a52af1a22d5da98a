
/* What a person does, and what happens meanwhile. */

let listTag;
let changes = 0, writing = 0; // of ours; a list that was asked for before one, or during one, is out of date
let knowsMethods, isWatching;
let timer, editing;
let turn = Promise.resolve();
const deleted = []; // {name, value, others} of colors that Undo creates again, the last first; `others` have the name, too

/* Reads the list if it is another one by now. */
async function look() {
	const before = changes;
	const answer = await ask('GET', base, {tag: listTag});
	if (writing || before !== changes || answer.status === 304) return;
	if (answer.status !== 200) throw Object.assign(new Error(answer.message), {isPrivate: answer.status === 401});
	listTag = answer.tag;
	take(answer.json.data);
}

const mayChange = () => document.body.className === 'writable';

/* Looks every second while the page is visible. */
async function watch() {
	if (isWatching) return;
	isWatching = true;
	while (!document.hidden) {
		try {
			if (!knowsMethods) document.body.className = (await ask('OPTIONS', base)).allow.includes('POST') ? 'writable' : 'read-only';
			knowsMethods = true;
			await look();
			sayBack();
		} catch ({message, isPrivate}) {
			say(at.away, isPrivate ? 'These colors are private.' : `${message} – trying again…`);
			at.give.hidden = !isPrivate;
			knowsMethods = false;
		}
		await new Promise(resolve => setTimeout(resolve, 1000));
	}
	isWatching = false;
}

/* Takes away what was said of a service that did not answer. */
function sayBack() {
	if (at.refusal.textContent === AWAY) say(at.refusal, '');
	if (at.told.textContent === AWAY || at.away.textContent && at.give.hidden) tell('The service is back.');
	say(at.away, '');
	at.give.hidden = true;
}

/* Says what happened, and after a while what Undo would do. */
function tell(text) {
	const last = deleted.at(-1);
	const undone = last ? `Deleted ${called(last.name)}. Undo creates it again, at the end.` : '';
	at.undo.hidden = !last;
	at.undo.textContent = deleted.length > 1 ? `Undo deletion (${deleted.length})` : 'Undo deletion';
	at.told.textContent = text ?? undone;
	clearTimeout(timer);
	if (text) timer = setTimeout(tell, 9000);
}

/* Does something that may fail; why is shown in the editor, while it is still for `mine`. */
async function attempt(action, mine) {
	try {
		await action();
	} catch ({message}) {
		mine && isOpenFor(mine) ? say(at.refusal, message) : tell(message);
	}
}

const isOpenFor = mine => at.editor.open && mine === editing;

/* Does changes one after the other, in the order in which they were asked for. */
function inTurn(action) {
	return turn = turn.catch(() => {}).then(action);
}

/* Sends a change. */
async function write(...request) {
	changes++;
	writing++;
	try {
		return await ask(...request);
	} finally {
		changes++;
		writing--;
	}
}

/* Sends a change of a color that still has its tag. */
async function change(method, name, options) {
	const answer = await write(method, pathOf(name), options);
	if (answer.status === 412) throw await tooLate(name);
	if (answer.status !== 200) throw new Error(answer.message);
}

async function tooLate(name) {
	const now = await ask('GET', pathOf(name));
	await look();
	const is = now.status === 200 ? `is ${called(now.json.value)} now` : 'is no longer there';
	return Object.assign(new Error(`Somebody was faster: ${called(name)} ${is}. Nothing was changed.`), {now});
}

/* How many colors have a name. */
const countOf = name => list.filter(color => color.name === name).length;

/* Appends a color. The list may change meanwhile, but no more colors of the same name may come. */
async function create(content, most = countOf(content.name)) {
	for (let tries = 9;; tries--) {
		const count = countOf(content.name);
		if (count > most) throw Object.assign(new Error(`Somebody was faster: there are ${count} of this name now. Nothing was added.`), {isTaken: true});
		const answer = await write('POST', base, {tag: listTag, content});
		if (answer.status === 201) break;
		if (answer.status !== 412 || !tries) throw new Error(answer.message);
		await look();
	}
	await look();
}

/* Takes a color off the screen at once, and deletes it if it still is what the person saw. */
async function remove({name, value, tag}) {
	const leave = () => leaving.splice(leaving.indexOf(name), 1);
	leaving.push(name);
	take(list);
	await inTurn(async () => {
		try {
			if (!tag) {
				const now = await ask('GET', pathOf(name));
				if (now.json.value !== value) throw await tooLate(name);
				tag = now.tag;
			}
			await change('DELETE', name, {tag});
		} catch (error) {
			leave();
			take(list);
			throw error;
		}
		leave();
		list = without(list, name);
		deleted.push({name, value, others: countOf(name)});
		tell();
		await look();
	});
}

async function undo() {
	const {name, value, others} = deleted.at(-1) ?? {};
	if (name === undefined) return;
	try {
		await create({name, value}, others);
	} catch (error) {
		if (!error.isTaken) throw error;
		deleted.pop();
		throw new Error(`${called(name)} was not created again: by now another color has this name.`);
	}
	deleted.pop();
	tell(`Created ${called(name)} again, at the end.`);
}

/* Why a color cannot be changed here. */
function obstacle({name, nth, of}) {
	if (/^\.\.?$/.test(name)) return 'Browsers take this name for a step in the path, so this color cannot be changed here.';
	return nth > 1 ? `This is number ${nth} of ${of} with its name. A path means the first.` : '';
}

/* Opens the editor for a color or a new one, unless another was asked for meanwhile. */
async function edit(entry) {
	const why = entry ? obstacle(entry) : '';
	const mine = editing = {name: entry?.name, value: ''};
	if (entry && !why) {
		const now = await ask('GET', pathOf(entry.name));
		if (mine !== editing) return;
		if (now.status !== 200) throw await tooLate(entry.name);
		Object.assign(mine, now.json, {tag: now.tag});
	}
	at.title.textContent = entry ? called(entry.name) : 'Add a color';
	at.naming.hidden = !!entry;
	at.valuing.hidden = at.preview.hidden = at.save.hidden = !!why;
	at.delete.hidden = !entry || !!why;
	at.name.value = at.refusal.textContent = '';
	at.value.value = mine.value;
	mine.asShown = at.value.value;
	at.note.textContent = why || (entry?.of > 1 ? `This is the first of ${entry.of} with its name. A path means the first.` : '');
	at.save.textContent = entry ? 'Save' : 'Add';
	preview();
	at.editor.showModal();
	(entry ? at.value : at.name).focus();
}

/* Shows the value; the picker follows. */
function preview() {
	const {rgb} = paint(at.preview, at.value.value);
	at.picker.value = `#${(rgb ?? [0, 0, 0]).map(channel => channel.toString(16).padStart(2, 0)).join('')}`;
}

/* Does what the editor is asked for, once, and closes it, unless it is for another color by then. */
function finish(action) {
	const mine = editing;
	if (mine.isBusy) return;
	mine.isBusy = true;
	at.refusal.textContent = '';
	attempt(async () => {
		try {
			await action(mine);
			if (isOpenFor(mine)) at.editor.close();
		} catch (error) {
			// who saves again has seen what it is now
			mine.tag = error.now?.tag ?? mine.tag;
			throw error;
		} finally {
			mine.isBusy = false;
		}
	}, mine);
}

async function save(mine) {
	// a field loses line breaks, but what nobody touched stays as it was
	const value = at.value.value === mine.asShown ? mine.value : at.value.value;
	const isNew = mine.name === undefined;
	const name = mine.name ?? at.name.value;
	await inTurn(() => isNew ? create({name, value}) : change('PUT', name, {tag: mine.tag, content: {value}}));
	tell(isNew ? `Added ${called(name)} at the end.` : `${called(name)} is ${called(value)} now.`);
	if (isOpenFor(mine)) at.editor.close();
	await look();
}

async function copy({key, value}) {
	try {
		await navigator.clipboard.writeText(value);
	} catch {
		// without TLS there is no clipboard but this
		const area = document.createElement('textarea');
		area.value = value;
		document.body.append(area);
		area.select();
		const isCopied = document.execCommand('copy');
		area.remove();
		focusOn(current);
		if (!isCopied) throw new Error('The browser did not allow to copy');
	}
	const tile = tiles.get(key);
	tile?.classList.add('copied');
	// a new text, even if it is the same, is read out
	at.said.textContent = `Copied ${called(value)}`;
	setTimeout(() => tile?.classList.remove('copied'), 1500);
}


at.list.onclick = event => {
	const button = event.target.closest('button');
	if (!button) return;
	const {entry} = button.parentElement;
	current = shown.indexOf(entry);
	draw();
	attempt(() => button.className === 'copy' ? copy(entry) : edit(entry));
};

at.list.onkeydown = event => {
	if (event.ctrlKey || event.altKey || event.metaKey) return;
	const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity};
	const {key, repeat, target} = event;
	const {entry} = target.closest('li');
	current = shown.indexOf(entry);
	if (key in steps) focusOn(current + steps[key]);
	else if (!/^(F2|Delete)$/.test(key) || !mayChange()) return;
	// a key that is held is one press
	else if (!repeat) attempt(() => key === 'F2' || obstacle(entry) ? edit(entry) : remove(entry));
	event.preventDefault();
};

onkeydown = event => {
	const isUndo = event.key === 'z' && (event.ctrlKey || event.metaKey) && !event.shiftKey;
	if (!isUndo || event.repeat || !deleted.length || event.target.closest('input, dialog')) return;
	event.preventDefault();
	at.undo.onclick();
};

/* A tile shows all of a cut text while it has the pointer or the focus. */
for (const type of ['pointerover', 'focusin']) {
	at.list.addEventListener(type, ({target}) => {
		const tile = target.closest('li');
		const isCut = text => text.scrollHeight > text.clientHeight + 1 || text.scrollWidth > text.clientWidth;
		if (tile && [...tile.querySelectorAll('bdi')].some(isCut)) tile.classList.add('whole');
	});
}

at.query.oninput = () => {
	scrollTo({top: 0, behavior: 'instant'});
	arrange();
};
at.order.onchange = arrange;
at.add.onclick = () => attempt(() => edit());
at.way.onclick = () => {
	if (!at.query.value) return at.add.onclick();
	at.query.value = '';
	at.query.focus();
	arrange();
};
at.give.onclick = () => attempt(async () => await askForToken('GET') && await look());
at.undo.onclick = () => attempt(() => inTurn(undo));
at.dismiss.onclick = () => tell('');

at.editor.onsubmit = event => {
	event.preventDefault();
	finish(save);
};
at.editor.onclose = () => {
	if (document.activeElement === document.body) focusOn(current);
};
at.delete.onclick = () => finish(remove);
at.value.oninput = preview;
at.picker.oninput = () => {
	at.value.value = at.picker.value;
	preview();
};
at.name.oninput = () => {
	const isTaken = entries.some(({name}) => name === at.name.value);
	say(at.note, isTaken ? 'There is one of this name already. A path means the first.' : '');
};
for (const button of document.querySelectorAll('.close')) button.onclick = () => button.closest('dialog').close();

onresize = () => entries.length && arrange();
new ResizeObserver(onresize).observe(at.header);
onscroll = () => entries.length > ALL && draw();
document.onvisibilitychange = watch;
watch();
