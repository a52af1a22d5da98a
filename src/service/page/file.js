/* Files in and out. A file that comes in is compared with the list; only then it may be added, or replace it. */
const CHANGED = 'The list has just changed. This is what would change now.';
let incoming; // {colors, source, file, all, expected, done} of the open comparison
let forms; // the module that knows the forms of files, once it was needed

/* What one list has and the other has not. */
function differencesOf(before, after) {
	const [old, now] = [before, after].map(colors => new Map(entriesOf(colors).map(entry => [entry.key, entry])));
	return {
		New: [...now.values()].filter(({key}) => !old.has(key)),
		Changed: [...now.values()].filter(({key, value}) => old.has(key) && old.get(key).value !== value),
		Removed: [...old.values()].filter(({key}) => !now.has(key)),
	};
}

/* A list with more colors: new names at its end, and those that it has with another value as `how` says. */
function joined(before, more, how) {
	const identity = ({name, value}) => JSON.stringify([name, value]);
	const places = Map.groupBy(before.keys(), i => before[i].name);
	const there = new Set(before.map(identity)), theirs = new Set(more.map(identity));
	const all = [...before];
	const clashes = new Set();
	for (const color of more.filter(color => !there.has(identity(color)))) {
		const same = places.get(color.name);
		if (same) clashes.add(color.name);
		const i = how === 'overwrite' ? same?.find(i => all[i] === before[i] && !theirs.has(identity(before[i]))) : undefined;
		if (i !== undefined) all[i] = color;
		else if (!same || how !== 'keep') all.push(color);
	}
	return {all, clashes: clashes.size};
}

const listed = (some, most) => some.slice(0, most).join(', ') + (some.length > most ? ` and ${figure(some.length - most)} more` : '');

/* Shows what colors would change, and where they are from. Those of a `file` may be added; others replace the list. */
function compare(colors, source, reason = '', file) {
	const isAdding = !!file && at.adding.checked;
	const {all, clashes} = isAdding ? joined(list, colors, at.clash.value) : {all: colors, clashes: 0};
	const {New, Changed, Removed} = differencesOf(list, all);
	const isNoChange = isSame(all, list);
	const kept = all.length - New.length - Changed.length;
	const excess = excessOf(all);
	const steps = [New.length && `added ${amount(New.length)}`, Changed.length && `changed ${amount(Changed.length)}`].filter(Boolean).join(' and ');
	const done = isAdding ? steps.replace('a', 'A').replace(/^c/, 'C') : `Replaced ${amount(list.length)} with ${figure(all.length)}`;
	incoming = {colors, source, file, all, expected: list, done};
	say(at.source, source);
	say(at.becomes, `${amount(list.length)} ${list.length === 1 ? 'becomes' : 'become'} ${figure(all.length)}`);
	say(at.reading, file ? `${file.form}: ${amount(colors.length)}${file.skipped.length ? `, ${figure(file.skipped.length)} skipped` : ''}.` : '');
	at.ways.hidden = !file;
	at.clashing.hidden = !clashes;
	say(at.clashes, `${figure(clashes)} ${clashes === 1 ? 'name has' : 'names have'} another value here`);
	say(at.summary, isNoChange ? isAdding ? 'Nothing would change.' : 'The same colors in the same order.' : kept ? `Unchanged: ${amount(kept)}${isAdding ? '' : ', in the order of the file'}.` : '');
	const pair = ({name, value}) => `${called(name)} ${called(value)}`;
	const old = new Map(entriesOf(list).map(({key, value}) => [key, value]));
	at.differences.replaceChildren(...Object.entries({
		New: New.map(pair),
		Changed: Changed.map(({name, value, key}) => `${called(name)} ${called(old.get(key))} → ${called(value)}`),
		Removed: Removed.map(pair),
		...file && !excess && remarksOn(colors, file),
	}).filter(([, some]) => some.length).flatMap(([what, some]) => [element('dt', `${what} (${figure(some.length)})`), element('dd', listed(some, 4))]));
	drawField(at.before, list);
	drawField(at.after, excess ? [] : all);
	say(at.obstacle, excess || reason);
	say(at.replace, isAdding ? 'Add to the list' : 'Replace the list');
	at.replace.classList.toggle('risky', !isAdding);
	at.replace.disabled = isNoChange || !!excess;
	if (!at.incoming.open) at.incoming.showModal();
}

/* What is to be said of a file, beside what it would change. */
function remarksOn(colors, {skipped, rough = []}) {
	const twice = entriesOf(colors).filter(({nth}) => nth === 2);
	return {
		Skipped: skipped.map(({name, why}) => `${called(name)}: ${why}`),
		'There twice': twice.map(({name}) => called(name)),
		'Without a name': colors.filter(({name}) => !name).map(({value}) => called(value)),
		'Text that is no color': colors.filter(({value}) => !lookOf(value).css).map(({name}) => called(name)),
		'Approximately, from inks': rough.map(called),
	};
}

/* Why the service would not take a list as a whole, if it would not. */
function excessOf(all) {
	const bytes = sizeOf(all);
	const most = document.body.dataset.contentMax;
	const isOne = all.length === list.length + 1 && isSame(all.slice(0, -1), list);
	if (bytes <= most || isOne) return '';
	const inUnits = (bytes, round) => bytes < 2 ** 20 ? `${round(bytes / 102.4) / 10} kB` : `${round(bytes / 2 ** 20 * 10) / 10} MB`;
	return `${inUnits(bytes, Math.ceil)}, and this service takes ${inUnits(most, Math.floor)} at a time. ${bytes > 2 ** 24 ? 'No service takes more than 16 MB.' : 'Who runs it can raise --max-body.'}`;
}

function drawField(field, colors) {
	field.ariaLabel = amount(colors.length);
	field.width = Math.max(1, Math.min(400, Math.ceil(Math.sqrt(colors.length * 2))));
	field.height = Math.max(1, Math.ceil(colors.length / field.width));
	const pen = field.getContext('2d');
	colors.forEach(({value}, i) => {
		pen.fillStyle = lookOf(value).css ?? '#8884';
		pen.fillRect(i % field.width, Math.floor(i / field.width), 1, 1);
	});
}

/* Compares again when the list changes, so that nobody replaces colors that were never shown. */
function followIncoming() {
	if (!at.incoming.open || incoming.isBusy || isSame(list, incoming.expected)) return;
	compare(incoming.colors, incoming.source, CHANGED, incoming.file);
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
	const whys = Object.entries(Object.groupBy(lost, ({why}) => why)).map(([why, some]) => `${listed(some.map(({name}) => called(name)), 3)}: ${why}.`);
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

/* Reads a file, or what was pasted, and shows what it would change. */
async function bring(file, source) {
	tell();
	if (!mayChange()) return refuse();
	if (document.querySelector('dialog[open]:not(#incoming)')) throw new Error('Close this first.');
	// a longer one might end the tab
	if (file.size > 2 ** 26) throw new Error(`${called(source)} has more than 64 MB.`);
	const {read} = await loadForms();
	// reading it takes seconds, in which nothing else is done
	if (file.size > 2 ** 20) {
		tell(`Reading ${called(source)}…`);
		await pause(50, {});
	}
	const found = read(new Uint8Array(await file.arrayBuffer()));
	if (!found) throw new Error(`No colors were found in ${called(source)}. JSON, CSS, SCSS, CSV, YAML, .gpl, .ase, .aco and lines as “sky #87ceeb” are read.`);
	tell();
	if (incoming?.isBusy) return;
	at.adding.checked = true;
	at.clash.value = 'keep';
	compare(found.colors, source, '', found);
}
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
at.ways.onchange = () => incoming.isBusy || compare(incoming.colors, incoming.source, '', incoming.file);
at.replace.onclick = async () => {
	const mine = incoming;
	if (mine.isBusy) return;
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
