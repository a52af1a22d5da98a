/* Changes. An edit is a function: of a list it makes the next one, and the edit that takes it back, or throws why it cannot. */
/* Edits are shown at once and sent one after the other. When somebody else was faster, an edit is made again of the new list. */
const windows = channelOf(base); // the others of this browser; each tells {tag} of the list that it has read, one {since} when it has waited for all
let listTag;
let following = new AbortController(); // of the requests that follow the list, and of the pauses between them
let turn = Promise.resolve(); // until the changes that were asked for are made
const done = [], undone = []; // {text, back}: what this page has changed, and then undone, and the edits that take it back

/* Has the edits of a kind tell what they are made of, so that undo outlives a reload of the page. */
const kinds = {};
const storable = (name, make) => kinds[name] = (...parts) => Object.assign(make(...parts), {kind: name, parts});

/* A list with `count` colors from the ith on replaced; toSpliced and with are younger than some browsers. */
function spliced(colors, i, count, ...others) {
	const next = [...colors];
	next.splice(i, count, ...others);
	return next;
}

/* Why an edit can no longer be made. */
class Late extends Error {}

const indexIn = (colors, wanted) => entriesOf(colors).findIndex(({key}) => key === wanted);

/* Where an entry is that somebody has seen. It has to be what it was. */
function find(colors, {name, value, key}) {
	const i = indexIn(colors, key);
	if (colors[i]?.value === value) return i;
	const is = i < 0 ? 'is no longer there' : `is ${called(colors[i].value)} now`;
	throw new Late(`Somebody was faster: ${called(name)} ${is}. Nothing was changed.`);
}

/* How many colors have a name. */
const countOf = (name, colors = list) => colors.filter(color => color.name === name).length;

/* A place in the list: behind the color that is before it, or by its index when that color has gone. */
const placeOf = (colors, i) => ({i, previous: entriesOf(colors)[i - 1]?.key});

function indexFor(colors, {i, previous}) {
	const before = indexIn(colors, previous);
	return before < 0 ? Math.min(i, colors.length) : before + 1;
}

/* No more than `most` other colors may have the name by then. */
const inserting = storable('inserting', (color, place, most = countOf(color.name)) => colors => {
	const count = countOf(color.name, colors);
	if (count > most) throw new Late(`Somebody was faster: there ${count === 1 ? 'is' : 'are'} ${count} of this name now. Nothing was added.`);
	const i = place ? indexFor(colors, place) : colors.length;
	const next = spliced(colors, i, 0, color);
	const added = entriesOf(next)[i];
	return {colors: next, back: removing(added), added};
});

const removing = storable('removing', seen => colors => {
	const i = find(colors, seen);
	const next = spliced(colors, i, 1);
	return {colors: next, back: inserting(colors[i], placeOf(colors, i), countOf(seen.name, next))};
});

const replacing = storable('replacing', (seen, color) => colors => {
	const i = find(colors, seen);
	const next = spliced(colors, i, 1, color);
	return {colors: next, back: replacing(entriesOf(next)[i], colors[i])};
});

const moving = storable('moving', (seen, place) => colors => {
	const i = find(colors, seen);
	const rest = spliced(colors, i, 1);
	const to = indexFor(rest, place);
	const next = spliced(rest, to, 0, colors[i]);
	return {colors: next, back: moving(entriesOf(next)[to], placeOf(rest, i))};
});

const isSame = (colors, others) => colors === others || colors.length === others.length && colors.every(({name, value}, i) => name === others[i].name && value === others[i].value);

/* All of the list, if it is the one that was compared. */
const exchanging = storable('exchanging', (all, expected) => colors => {
	if (!isSame(colors, expected)) throw Object.assign(new Late('Somebody was faster: the list is another one now. Nothing was replaced.'), {all});
	return {colors: all, back: exchanging(expected, all)};
});

/* Shows an edit at once, and makes it after those that were asked for before; `text` says what was done. An undo and what takes it back say in which list they are `kept`. */
function make(edit, text, kept) {
	pending.add(edit);
	take(list);
	const result = turn.then(() => apply(edit, text, kept));
	turn = result.catch(() => {});
	return result;
}

async function apply(edit, text, kept) {
	let result, answer, end = '';
	try {
		for (let tries = 9;; tries--) {
			result = edit(list);
			answer = await submit(result.colors);
			if (answer.status < 300) break;
			if (answer.status !== 412 && answer.status !== 404 || !tries) throw new Error(answer.message);
			await readList();
			end = ' The list had changed meanwhile.';
		}
	} catch (error) {
		pending.delete(edit);
		take(list);
		throw error;
	}
	pending.delete(edit);
	if (answer.isAtEnd) {
		result = inserting(answer.json)(list);
		end = ' It is at the end: the list is too long to send.';
	}
	take(result.colors);
	if (!kept) undone.length = 0;
	(kept ?? done).push({text, back: result.back});
	// the change is made, whether or not this succeeds; the next one needs the new tag
	await readList().catch(() => {});
	tell((kept === undone ? 'Undone: ' : '') + text + end, kept === undone ? at.redo : at.undo);
	return result;
}

const sizeOf = colors => new Blob([JSON.stringify(colors)]).size;
/* Whether the service refuses the list as a whole. */
const isTooLong = () => sizeOf(list) > document.body.dataset.contentMax;

/* Sends the list that is to be: as a change of one color where it is one, which needs few bytes, or else as a whole. */
async function submit(next) {
	const i = next.findIndex((color, i) => color !== list[i]);
	const change = i < 0 ? next.length : i;
	const by = next.length - list.length;
	const old = list[change], color = next[change];
	const isRest = from => next.slice(from).every((color, i) => color === list[from + i - by]);
	// a path names the first of a name, and browsers take . and .. for steps in it
	const hasPath = old && !/^\.\.?$/.test(old.name) && list.findIndex(({name}) => name === old.name) === change;
	if (by === 1 && !old) return write('POST', base, {tag: listTag, content: color});
	if (by === -1 && hasPath && isRest(change)) return writeColor('DELETE', old);
	if (by === 0 && hasPath && color?.name === old.name && isRest(change + 1)) return writeColor('PUT', old, {value: color.value});
	const answer = await write('PUT', base, {tag: listTag, content: next});
	if (answer.status !== 413 || by !== 1) return answer;
	return {...await write('POST', base, {tag: listTag, content: color}), isAtEnd: true};
}

/* Changes a color that is what it was, with its own tag: what happens to others does not matter. */
async function writeColor(method, {name, value}, content) {
	const now = await ask('GET', pathOf(name));
	if (now.status === 200 && now.json.value !== value) return {...now, status: 412};
	return now.status === 200 ? write(method, pathOf(name), {tag: now.tag, content}) : now;
}

/* Sends a change. */
function write(...request) {
	// what they bring may be older than the change
	following.abort();
	return ask(...request);
}

/* Reads the list if it has changed, or changes within `wait` seconds; then it gives the one before. */
async function readList(wait, signal) {
	const tag = listTag;
	const answer = await ask('GET', base, {tag, wait, signal});
	// meanwhile another request may have brought it
	if (answer.status === 304 || tag !== listTag) return null;
	if (answer.status !== 200) throw Object.assign(new Error(answer.message), {isPrivate: answer.status === 401});
	listTag = answer.tag;
	// where a tag is lost on the way, a list that is the same is no news
	if (tag && isSame(list, answer.json.data)) return null;
	at.give.hidden = false;
	windows.postMessage({tag: listTag === NO_TAG ? `${Date.now()}` : listTag});
	const before = list;
	take(answer.json.data);
	if (!tag) recall();
	return before;
}

/* Each takes back what the other one, or a change, has done. */
const undo = () => takeBack(done, undone);
const redo = () => takeBack(undone, done);

async function takeBack(from, kept) {
	settle();
	await turn;
	const last = from.pop();
	if (!last) return;
	try {
		const {added} = last.back(list);
		const made = make(last.back, last.text, kept);
		// at once, as the focus may be elsewhere when the service has answered
		if (added && !document.querySelector('dialog[open]')) reach(added);
		await made;
	} catch (error) {
		tell();
		if (error.all) return compare(error.all, 'Before', 'The list has changed since. This is what undoing would replace.');
		// what was only not sent, or refused, can be tried again
		if (!(error instanceof Late)) from.push(last);
		throw error;
	}
}

/* A window that is loaded again can go on undoing, if the list is the one that it has left. */
const UNDO = `undo for ${base}`;
addEventListener('pagehide', () => {
	if (!listTag) return;
	const steps = [done, undone].map(some => some.map(({text, back: {kind, parts}}) => ({text, kind, parts})));
	for (let isCut = false; ; isCut = true) {
		try {
			return storage.setItem(UNDO, JSON.stringify({tag: listTag, steps, isCut}));
		} catch {
			// there is no room: the oldest steps of the longer list go
			const [some] = [...steps].sort((a, b) => sizeOf(b) - sizeOf(a));
			if (!some.length) return storage.removeItem(UNDO);
			some.splice(0, Math.ceil(some.length / 2));
		}
	}
});

function recall() {
	const {tag, steps, isCut} = JSON.parse(storage.getItem(UNDO)) ?? {};
	if (tag !== listTag) return;
	[done, undone].forEach((some, i) => some.push(...steps[i].map(({text, kind, parts}) => ({text, back: kinds[kind](...parts)}))));
	tell(isCut && 'Not all can be undone any more: it was too long to keep.');
}

/* Shows for a while what happened, and the button that takes it back; and in the menu what can be taken back. */
function tell(text, button) {
	at.told.textContent = text || '';
	at.message.classList.toggle('empty', !text);
	at.takeBack.hidden = !button;
	at.takeBack.textContent = button === at.redo ? 'Redo' : 'Undo';
	at.takeBack.onclick = () => button.click();
	for (const [item, last, label] of [[at.undo, done.at(-1), 'Undo'], [at.redo, undone.at(-1), 'Redo']]) {
		item.disabled = !last;
		item.textContent = last ? `${label}: ${last.text}` : label;
	}
	clearTimeout(tell.timer);
	if (text) tell.timer = setTimeout(fade, 12000);
}

/* Takes the message away, unless the focus is in it. */
const fade = () => at.message.matches(':focus-within') ? tell.timer = setTimeout(fade, 12000) : tell();
