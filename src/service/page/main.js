
/* What a person does, and what happens meanwhile. */

let listTag;
let changes = 0; // of ours; lists asked for before one are out of date after it
let knowsMethods, isWatching;
let undo, timer, editing;

/* Reads the list if it is another one by now. */
async function look() {
	const before = changes;
	const answer = await ask('GET', base, {tag: listTag});
	if (before !== changes || answer.status === 304) return;
	if (answer.status !== 200) throw new Error(answer.message);
	listTag = answer.tag;
	take(answer.json.data);
}

/* Looks every second while the page is visible. */
async function watch() {
	if (isWatching) return;
	isWatching = true;
	while (!document.hidden) {
		try {
			if (!knowsMethods) document.body.classList.toggle('read-only', !(await ask('OPTIONS', base)).allow.includes('POST'));
			knowsMethods = true;
			await look();
			if (at.away.textContent) tell('The service is back.');
			say(at.away, '');
		} catch (error) {
			say(at.away, `${error.message} – ${isDeclined ? 'reload the page to give one' : 'trying again…'}`);
			knowsMethods = false;
		}
		await new Promise(resolve => setTimeout(resolve, 1000));
	}
	isWatching = false;
}

/* Says what happened; `action` is what Undo does. */
function tell(text, action) {
	undo = action;
	at.undo.hidden = !action;
	at.told.textContent = text;
	clearTimeout(timer);
	if (!action) timer = setTimeout(tell, 9000, '');
}

/* Does something that may fail; why is shown in `place`. */
async function attempt(action, place) {
	try {
		await action();
	} catch ({message}) {
		place ? say(place, message) : tell(message);
	}
}

/* Sends a change of a color that still has its tag. */
async function change(method, name, options) {
	const answer = await ask(method, pathOf(name), options);
	if (answer.status === 412) throw await tooLate(name);
	if (answer.status !== 200) throw new Error(answer.message);
	changes++;
}

async function tooLate(name) {
	const now = await ask('GET', pathOf(name));
	await look();
	const is = now.status === 200 ? `is ${called(now.json.value)} now` : 'is no longer there';
	return Object.assign(new Error(`Somebody was faster: ${called(name)} ${is}. Nothing was changed.`), {now});
}

/* Appends a color. The list may change meanwhile, but for colors of the same name. */
async function create(content) {
	const same = () => entries.filter(({name}) => name === content.name).length;
	const before = same();
	for (let tries = 9;; tries--) {
		const answer = await ask('POST', base, {tag: listTag, content});
		if (answer.status === 201) break;
		if (answer.status !== 412 || !tries) throw new Error(answer.message);
		await look();
		if (same() !== before) throw new Error(`Somebody was faster: there are ${same()} of this name now. Nothing was added.`);
	}
	changes++;
	await look();
}

async function remove({name, value, tag}) {
	await change('DELETE', name, {tag});
	tell(`Deleted ${called(name)}. Undo creates it again, at the end.`, async () => {
		await create({name, value});
		tell(`Created ${called(name)} again, at the end.`);
	});
	await look();
}

/* Deletes what the person sees, if it still is. */
async function removeSeen(entry) {
	const now = await ask('GET', pathOf(entry.name));
	if (now.json.value !== entry.value) throw await tooLate(entry.name);
	await remove({...entry, tag: now.tag});
}

/* Why a color cannot be changed here. */
function obstacle({name, nth, of}) {
	if (/^\.\.?$/.test(name)) return 'Browsers take this name for a step in the path, so this color cannot be changed here.';
	return nth > 1 ? `This is number ${nth} of ${of} with its name. A path means the first.` : '';
}

/* Opens the editor for a color or a new one. */
async function edit(entry) {
	const why = entry ? obstacle(entry) : '';
	const now = entry && !why && await ask('GET', pathOf(entry.name));
	if (now && now.status !== 200) throw await tooLate(entry.name);
	editing = {name: entry?.name, value: '', ...now?.json, tag: now?.tag};
	at.title.textContent = entry ? called(entry.name) : 'Add a color';
	at.naming.hidden = !!entry;
	at.valuing.hidden = at.preview.hidden = at.save.hidden = !!why;
	at.delete.hidden = !entry || !!why;
	at.name.value = at.refusal.textContent = '';
	at.value.value = editing.value;
	editing.asShown = at.value.value;
	at.note.textContent = why || (entry?.of > 1 ? `This is the first of ${entry.of} with its name. A path means the first.` : '');
	preview();
	at.editor.showModal();
	(entry ? at.value : at.name).focus();
}

/* Shows the value; the picker follows. */
function preview() {
	const {rgb} = paint(at.preview, at.value.value);
	at.picker.value = `#${(rgb ?? [0, 0, 0]).map(channel => channel.toString(16).padStart(2, 0)).join('')}`;
}

async function save() {
	// a field loses line breaks, but what nobody touched stays as it was
	const value = at.value.value === editing.asShown ? editing.value : at.value.value;
	const isNew = editing.name === undefined;
	const name = editing.name ?? at.name.value;
	try {
		await (isNew ? create({name, value}) : change('PUT', name, {tag: editing.tag, content: {value}}));
	} catch (error) {
		// who saves again has seen what it is now
		editing.tag = error.now?.tag ?? editing.tag;
		throw error;
	}
	at.editor.close();
	tell(isNew ? `Added ${called(name)} at the end.` : `${called(name)} is ${called(value)} now.`);
	await look();
}

async function copy({value}) {
	try {
		await navigator.clipboard.writeText(value);
	} catch {
		// without TLS there is no clipboard but this
		const area = document.createElement('textarea');
		area.value = value;
		document.body.append(area);
		area.select();
		document.execCommand('copy');
		area.remove();
		focusOn(current);
	}
	tell(`Copied ${called(value)}`);
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
	const entry = shown[current];
	const mayChange = at.add.offsetParent; // null when controls are hidden
	if (event.key in steps) focusOn(current + steps[event.key]);
	else if (event.key === 'F2' && mayChange) attempt(() => edit(entry));
	else if (event.key === 'Delete' && mayChange) attempt(() => obstacle(entry) ? edit(entry) : removeSeen(entry));
	else return;
	event.preventDefault();
};

at.query.oninput = () => {
	scrollTo({top: 0, behavior: 'instant'});
	arrange();
};
at.order.onchange = arrange;
at.add.onclick = () => attempt(() => edit());
at.undo.onclick = () => {
	attempt(undo);
	tell('');
};
at.dismiss.onclick = () => tell('');

at.editor.onsubmit = event => {
	event.preventDefault();
	at.refusal.textContent = '';
	attempt(save, at.refusal);
};
at.editor.onclose = () => {
	if (document.activeElement === document.body) focusOn(current);
};
at.delete.onclick = () => attempt(async () => {
	await remove(editing);
	at.editor.close();
}, at.refusal);
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
onscroll = draw;
matchMedia('(prefers-color-scheme: dark)').onchange = () => {
	for (const tile of tiles.values()) tile.entry = null;
	draw();
};
document.onvisibilitychange = watch;
watch();
