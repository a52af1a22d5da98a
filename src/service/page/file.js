/* Files in and out. A file that comes in is compared with the list; only then it may be added, or replace it. */
const CHANGED = 'The list has just changed. This is what would change now.';
let incoming; // {colors, source, file, all, expected, done} of the open comparison
let forms; // the module that knows the forms of files, once it was needed
let reading; // what is being read, until another file or Stop takes its place
const SLICE = 10; // milliseconds of work, after which the page answers to other things
const SLOW = 300; // milliseconds after which it is said that a file is being read
const MOST_BYTES = 2 ** 25; // of a file; a longer one might end the tab

/* Does work that yields after each small part of it, and lets the page go on meanwhile; undefined if that is not wanted any more. */
async function inSlices(steps, isWanted) {
	for (let end = performance.now() + SLICE; ;) {
		const {done, value} = steps.next();
		if (done) return value;
		if (performance.now() < end) continue;
		await nextTask();
		if (!isWanted()) return undefined;
		end = performance.now() + SLICE;
	}
}

/* Unlike a timer, this is not late in a hidden tab. */
const nextTask = () => new Promise(resolve => {
	const {port1, port2} = new MessageChannel();
	port1.onmessage = () => resolve(port1.close());
	port2.postMessage('');
});

/* What one list has and the other has not. */
function* differencesOf(before, after) {
	const [old, now] = [new Map(), new Map()];
	for (const [entries, colors] of [[old, before], [now, after]]) {
		for (const entry of yield* numbered(colors)) {
			entries.set(entry.key, entry);
			yield;
		}
	}
	const differences = {New: [], Changed: [], Removed: []};
	for (const [key, entry] of now) {
		const other = old.get(key);
		if (!other) differences.New.push(entry);
		else if (other.value !== entry.value) differences.Changed.push({...entry, old: other.value});
		yield;
	}
	for (const [key, entry] of old) {
		if (!now.has(key)) differences.Removed.push(entry);
		yield;
	}
	return differences;
}

/* A list with more colors: new names at its end, and those that it has with another value as `how` says. */
function* joined(before, more, how) {
	const identity = ({name, value}) => JSON.stringify([name, value]);
	const places = new Map();
	const there = new Set(), theirs = new Set();
	for (const [i, color] of before.entries()) {
		if (!places.has(color.name)) places.set(color.name, []);
		places.get(color.name).push(i);
		there.add(identity(color));
		yield;
	}
	for (const color of how === 'overwrite' ? more : []) {
		theirs.add(identity(color));
		yield;
	}
	const all = [...before];
	const clashes = new Set();
	for (const color of more) {
		yield;
		if (there.has(identity(color))) continue;
		const same = places.get(color.name);
		if (same) clashes.add(color.name);
		const i = how === 'overwrite' ? same?.find(i => all[i] === before[i] && !theirs.has(identity(before[i]))) : undefined;
		if (i !== undefined) all[i] = color;
		else if (!same || how !== 'keep') all.push(color);
	}
	return {all, clashes: clashes.size};
}

/* Finds out what colors would change. */
function* planOf(before, colors, file, how) {
	const {all, clashes} = how ? yield* joined(before, colors, how) : {all: colors, clashes: 0};
	let bytes = 1;
	for (let i = 0; i < all.length; i += 999) {
		bytes += sizeOf(all.slice(i, i + 999)) - 1;
		yield;
	}
	const excess = excessOf(all, bytes);
	const fields = [yield* fieldOf(before), yield* fieldOf(excess ? [] : all)];
	return {all, clashes, excess, fields, differences: yield* differencesOf(before, all), remarks: file ? yield* remarksOn(colors, file) : []};
}

const listed = (some, most, textOf) => some.slice(0, most).map(textOf).join(', ') + (some.length > most ? ` and ${figure(some.length - most)} more` : '');

/* Shows what colors would change, and where they are from. Those of a `file` may be added; others replace the list. */
async function compare(colors, source, reason = '', file) {
	const isAdding = !!file && at.adding.checked;
	const before = list;
	const isOpen = at.incoming.open;
	const mine = incoming = {colors, source, file, expected: before};
	const plan = await inSlices(planOf(before, colors, file, isAdding && at.clash.value), () => incoming === mine);
	if (!plan || isOpen && !at.incoming.open) return;
	const {all, clashes, excess, fields, differences, remarks} = plan;
	const {New, Changed, Removed} = differences;
	const isNoChange = isSame(all, before);
	const kept = all.length - New.length - Changed.length;
	const steps = [New.length && `added ${amount(New.length)}`, Changed.length && `changed ${amount(Changed.length)}`].filter(Boolean).join(' and ');
	const done = isAdding ? steps.replace('a', 'A').replace(/^c/, 'C') : `Replaced ${amount(before.length)} with ${figure(all.length)}`;
	Object.assign(mine, {all, done});
	say(at.source, source);
	say(at.becomes, `${amount(before.length)} ${before.length === 1 ? 'becomes' : 'become'} ${figure(all.length)}`);
	say(at.reading, file ? `${file.form}: ${amount(colors.length)}${file.skipped.length ? `, ${figure(file.skipped.length)} skipped` : ''}.` : '');
	at.ways.hidden = !file;
	at.clashing.hidden = !clashes;
	say(at.clashes, `${figure(clashes)} ${clashes === 1 ? 'name has' : 'names have'} another value here`);
	say(at.summary, isNoChange ? isAdding ? 'Nothing would change.' : 'The same colors in the same order.' : kept ? `Unchanged: ${amount(kept)}${isAdding ? '' : ', in the order of the file'}.` : '');
	const pair = ({name, value}) => `${called(name)} ${called(value)}`;
	const rows = [['New', New, pair], ['Changed', Changed, ({name, value, old}) => `${called(name)} ${called(old)} → ${called(value)}`], ['Removed', Removed, pair], ...excess ? [] : remarks];
	at.differences.replaceChildren(...rows.filter(([, some]) => some.length).flatMap(([what, some, textOf]) => [element('dt', `${what} (${figure(some.length)})`), element('dd', listed(some, 4, textOf))]));
	drawField(at.before, before.length, fields[0]);
	drawField(at.after, excess ? 0 : all.length, fields[1]);
	say(at.obstacle, excess || reason);
	say(at.replace, isAdding ? 'Add to the list' : 'Replace the list');
	at.replace.classList.toggle('risky', !isAdding);
	at.replace.disabled = isNoChange || !!excess;
	if (!at.incoming.open) at.incoming.showModal();
	// the list may have changed meanwhile
	followIncoming();
}

/* What is to be said of a file, beside what it would change: the colors, and what is said of each. */
function* remarksOn(colors, {skipped, rough = []}) {
	const twice = [], nameless = [], others = [];
	const counts = new Map();
	for (const color of colors) {
		const {name, value} = color;
		const count = (counts.get(name) ?? 0) + 1;
		counts.set(name, count);
		if (count === 2) twice.push(color);
		if (!name) nameless.push(color);
		if (!PLAIN.test(value) && !lookOf(value).css) others.push(color);
		yield;
	}
	const nameOf = ({name}) => called(name);
	return [
		['Skipped', skipped, ({name, why}) => `${called(name)}: ${why}`],
		['There twice', twice, nameOf],
		['Without a name', nameless, ({value}) => called(value)],
		['Text that is no color', others, nameOf],
		['Approximately, from inks', rough, called],
	];
}

/* Why the service would not take a list as a whole, if it would not. */
function excessOf(all, bytes) {
	const most = document.body.dataset.contentMax;
	const isOne = all.length === list.length + 1 && isSame(all.slice(0, -1), list);
	if (bytes <= most || isOne) return '';
	const inUnits = (bytes, round) => bytes < 2 ** 20 ? `${round(bytes / 102.4) / 10} kB` : `${round(bytes / 2 ** 20 * 10) / 10} MB`;
	return `${inUnits(bytes, Math.ceil)}, and this service takes ${inUnits(most, Math.floor)} at a time. ${bytes > 2 ** 24 ? 'No service takes more than 16 MB.' : 'Who runs it can raise --max-body.'}`;
}

/* The picture of a list: a pixel for each color. */
function* fieldOf(colors) {
	const width = Math.max(1, Math.min(400, Math.ceil(Math.sqrt(colors.length * 2))));
	const field = new ImageData(width, Math.max(1, Math.ceil(colors.length / width)));
	for (const [i, {value}] of colors.entries()) {
		// most values; the look of all would need much memory
		const digits = PLAIN.test(value) && parseInt(value.slice(1), 16);
		const {rgb = [0.5, 0.5, 0.5], alpha = 0.25} = digits === false ? lookOf(value) : {};
		field.data.set(digits === false ? bytesOf([...rgb, alpha]) : [digits >> 16, digits >> 8 & 255, digits & 255, 255], 4 * i);
		yield;
	}
	return field;
}

function drawField(canvas, count, field) {
	canvas.ariaLabel = amount(count);
	canvas.width = field.width;
	canvas.height = field.height;
	canvas.getContext('2d').putImageData(field, 0, 0);
}

/* Compares again when the list changes, so that nobody replaces colors that were never shown. */
function followIncoming() {
	if (!at.incoming.open || incoming.isBusy || isSame(list, incoming.expected)) return;
	attempt(() => compare(incoming.colors, incoming.source, CHANGED, incoming.file));
}

function download(name, text) {
	const link = Object.assign(element('a'), {href: URL.createObjectURL(new Blob([text])), download: name});
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

at.saveJson.onclick = () => download('colors.json', `${JSON.stringify(list, null, 2)}\n`);
/* Writes another form, and tells what it cannot have. */
async function saveAs({form, file}) {
	tell();
	const {write} = await loadForms();
	const {text, lost} = write(form, list, lookOf);
	download(file, text);
	const whys = [...new Set(lost.map(({why}) => why))].map(why => `${listed(lost.filter(other => other.why === why), 3, ({name}) => called(name))}: ${why}.`);
	if (lost.length) tell(`${file} differs from the list. ${whys.join(' ')}`);
}

/* Loads the rest of the script. What it did not get, a browser does not ask for again. */
async function loadForms() {
	try {
		return await (forms ??= import(`${base.replace(/colors$/, 'page/files.js')}?${Date.now()}`));
	} catch {
		forms = undefined;
		throw new Error(AWAY);
	}
}

const isElsewhere = () => !!document.querySelector('dialog[open]:not(#incoming)');

/* Reads a file, or what was pasted, and shows what it would change. */
async function bring(file, source) {
	tell();
	if (!mayChange()) return refuse();
	if (isElsewhere()) throw new Error('Close this first.');
	if (file.size > MOST_BYTES) throw new Error(`${called(source)} has more than ${MOST_BYTES / 2 ** 20} MB.`);
	stopReading();
	const mine = reading = {};
	const timer = setTimeout(() => {
		say(at.reads, `Reading ${called(source)}…`);
		at.busy.hidden = false;
	}, SLOW);
	try {
		const {read} = await loadForms();
		const bytes = new Uint8Array(await file.arrayBuffer());
		const found = await inSlices(read(bytes), () => reading === mine);
		while (reading === mine && isElsewhere()) await pause(SLOW, {});
		if (reading !== mine || incoming?.isBusy) return;
		if (!found) throw new Error(`No colors were found in ${called(source)}. ${READ}`);
		const [doubt] = found.skipped;
		if (!found.colors.length && doubt) throw new Error(`No color in ${called(source)} is certain. ${called(doubt.name)}: ${doubt.why}.`);
		tell();
		at.adding.checked = true;
		at.clash.value = 'keep';
		await compare(found.colors, source, '', found);
	} finally {
		clearTimeout(timer);
		if (reading === mine) stopReading();
	}
}
const READ = 'JSON, scripts, CSS, SCSS, Less, GTK, tables (CSV, GDAL, GMT), XML (Android, Windows, LibreOffice, Scribus, CorelDRAW, QGIS, iTerm), YAML, LaTeX, .gpl, .pal, .act, .ase, .aco, paint.net and lines as “sky #87ceeb” are read.';

/* Gives up what is being read. */
function stopReading() {
	reading = undefined;
	at.busy.hidden = true;
}

at.stop.onclick = () => {
	stopReading();
	incoming = undefined;
	at.incoming.close();
	tell('Stopped reading.');
};
const bringFirst = ([file]) => file && attempt(() => bring(file, file.name));

for (const button of document.querySelectorAll('[data-form]')) button.onclick = () => attempt(() => saveAs(button.dataset));
at.choose.onclick = () => at.file.click();
at.file.onchange = () => {
	bringFirst(at.file.files);
	at.file.value = '';
};
ondragover = event => event.dataTransfer.types.includes('Files') && event.preventDefault();
ondrop = event => {
	if (event.dataTransfer.files.length) event.preventDefault();
	bringFirst(event.dataTransfer.files);
};
addEventListener('paste', event => {
	const {clipboardData: data, target} = event;
	const text = data.getData('text/plain');
	if (target.closest('input, select')) return;
	if (data.files.length) bringFirst(data.files);
	else if (text.trim()) attempt(() => bring(new Blob([text]), 'Pasted'));
});
at.ways.onchange = () => incoming.isBusy || attempt(() => compare(incoming.colors, incoming.source, '', incoming.file));
at.replace.onclick = async () => {
	const mine = incoming;
	// what it would do is not known before it is shown
	if (mine.isBusy || !mine.all) return;
	mine.isBusy = true;
	try {
		await make(exchanging(mine.all, mine.expected), `${mine.done}.`);
		at.incoming.close();
	} catch (error) {
		if (error.all && at.incoming.open) return compare(mine.colors, mine.source, CHANGED, mine.file);
		say(at.obstacle, error.message);
	} finally {
		mine.isBusy = false;
	}
};
