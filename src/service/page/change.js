/* Changes. An edit makes, of the list that there is, the next one and the edit that takes it back; it throws why it cannot. Edits are */
/* shown at once, sent one after the other, and made anew of the list that is there by then if somebody was faster. */

const windows = new BroadcastChannel(base); // the others of this browser, told the tag of each list
let listTag;
let ending = new AbortController(); // of the request or the pause between two that follows the list
let changes = 0, writing = 0; // of ours; a list that was asked for before one, or during one, is out of date
let turn = Promise.resolve();
let timer;
const done = []; // {text, back}: what this page has changed, and the edits that take it back

/* Why an edit can no longer be made. */
class Late extends Error {}

/* Where a color is that somebody has seen. It has to be what it was. */
function find(colors, {name, value, nth}) {
	let count = 0;
	const i = colors.findIndex(color => color.name === name && ++count === nth);
	if (colors[i]?.value === value) return i;
	const is = i < 0 ? 'is no longer there' : `is ${called(colors[i].value)} now`;
	throw new Late(`Somebody was faster: ${called(name)} ${is}. Nothing was changed.`);
}

/* The color at an index as somebody sees it. */
function seenAt(colors, i) {
	const {name, value} = colors[i];
	return {name, value, nth: countOf(name, colors.slice(0, i + 1))};
}

/* How many colors have a name. */
const countOf = (name, colors = list) => colors.filter(color => color.name === name).length;

/* The place before an index: what is there, and the index for when that has gone. */
const placeOf = (colors, i) => ({i, previous: i > 0 && seenAt(colors, i - 1)});

function indexFor(colors, {i, previous}) {
	if (!previous) return Math.min(i, colors.length);
	let count = 0;
	const there = colors.findIndex(({name}) => name === previous.name && ++count === previous.nth);
	return there < 0 ? Math.min(i, colors.length) : there + 1;
}

/* No more than `most` other colors may have the name by then. */
const inserting = (color, place, most = countOf(color.name)) => colors => {
	const count = countOf(color.name, colors);
	if (count > most) throw new Late(`Somebody was faster: there ${count === 1 ? 'is' : 'are'} ${count} of this name now. Nothing was added.`);
	const i = place ? indexFor(colors, place) : colors.length;
	const next = colors.toSpliced(i, 0, color);
	return {colors: next, back: removing(seenAt(next, i))};
};

const removing = seen => colors => {
	const i = find(colors, seen);
	const next = colors.toSpliced(i, 1);
	return {colors: next, back: inserting(colors[i], placeOf(colors, i), countOf(seen.name, next))};
};

const replacing = (seen, color) => colors => {
	const i = find(colors, seen);
	const next = colors.with(i, color);
	return {colors: next, back: replacing(seenAt(next, i), colors[i])};
};

const moving = (seen, place) => colors => {
	const i = find(colors, seen);
	const rest = colors.toSpliced(i, 1);
	const to = indexFor(rest, place);
	const next = rest.toSpliced(to, 0, colors[i]);
	return {colors: next, back: moving(seenAt(next, to), placeOf(rest, i))};
};

/* All of the list, if it is the one that was compared. */
const exchanging = (all, expected) => colors => {
	const isSame = colors === expected || JSON.stringify(colors) === JSON.stringify(expected);
	if (!isSame) throw Object.assign(new Late('Somebody was faster: the list is another one now. Nothing was replaced.'), {all});
	return {colors: all, back: exchanging(expected, all)};
};

/* Makes an edit, which is shown at once; `text` says what was done. */
async function make(edit, text, isUndo) {
	pending.push(edit);
	glide(() => take(list));
	const leave = () => pending.splice(pending.indexOf(edit), 1);
	await inTurn(async () => {
		let result, end = '';
		try {
			for (let tries = 9;; tries--) {
				result = edit(list);
				const answer = await submit(result.colors);
				if (answer.status < 300) {
					if (answer.isAtEnd) [result, end] = [inserting(answer.json)(list), ' It is at the end: the list is too long to send.'];
					break;
				}
				if (answer.status !== 412 && answer.status !== 404 || !tries) throw new Error(answer.message);
				await look();
				end = ' The list had changed meanwhile.';
			}
		} catch (error) {
			leave();
			take(list);
			throw error;
		}
		leave();
		take(result.colors);
		if (!isUndo) done.push({text, back: result.back});
		// the change is made, whether or not this succeeds; the next one needs the new tag
		await look().catch(() => {});
		tell(text + end);
	});
}

/* Whether the service refuses the list as a whole. */
const isTooLong = () => new Blob([JSON.stringify(list)]).size > document.body.dataset.contentMax;

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

/* Does changes one after the other, in the order in which they were asked for. */
function inTurn(action) {
	return turn = turn.catch(() => {}).then(action);
}

/* Sends a change. */
async function write(...request) {
	changes++;
	writing++;
	// would bring the change that is made here
	ending.abort();
	try {
		return await ask(...request);
	} finally {
		changes++;
		writing--;
	}
}

/* Reads the list if it is another one by now, or is within `wait` seconds; tells whether it was. */
async function look(wait, signal) {
	const [before, tag] = [changes, listTag];
	const answer = await ask('GET', base, {tag, wait, signal});
	if (answer.status === 304) return false;
	if (writing || before !== changes || tag !== listTag) return true;
	if (answer.status !== 200) throw Object.assign(new Error(answer.message), {isPrivate: answer.status === 401});
	listTag = answer.tag;
	windows.postMessage(listTag);
	take(answer.json.data);
	return true;
}

/* Takes back the last change. */
async function undo() {
	await turn.catch(() => {});
	const last = done.pop();
	if (!last) return;
	try {
		await make(last.back, `Undone: ${last.text}`, true);
	} catch (error) {
		if (error.all) return compare(error.all, 'Before', 'The list has changed since. This is what undoing would replace.');
		// what was only not sent, or refused, can be tried again
		if (!(error instanceof Late)) done.push(last);
		throw error;
	} finally {
		offerUndo();
	}
}

/* Says what happened for a while, with a way back. */
function tell(text = '') {
	at.told.textContent = text;
	at.show.hidden = true;
	offerUndo();
	clearTimeout(timer);
	// so that one can scroll the last tiles out from under it
	document.body.style.paddingBottom = text && `${at.message.offsetHeight + 24}px`;
	if (text) timer = setTimeout(fade, 12000);
}

/* Takes the message away, but not the focus. */
function fade() {
	if (at.message.matches(':focus-within')) timer = setTimeout(fade, 12000);
	else tell();
}

function offerUndo() {
	const last = done.at(-1);
	at.takeBack.hidden = !last || !at.told.textContent.startsWith(last.text);
	at.undo.disabled = !last;
	at.undo.textContent = last ? `Undo: ${last.text}` : 'Undo';
}
