/* Files in and out. A file that comes in is compared with the list; only then it may replace it. */
const CHANGED = 'The list has just changed. This is what would change now.';
let incoming; // {all, source, expected} of the open comparison

/* The colors of a file: an array, or what the service answers. */
function colorsOf(data) {
	const all = Array.isArray(data) ? data : data?.data;
	if (!Array.isArray(all)) throw new Error('This file has no list of colors in JSON: an array of objects with name and value.');
	return all.map((color, i) => {
		for (const field of ['name', 'value']) {
			if (typeof color?.[field] !== 'string') throw new Error(`Color ${i + 1} of this file has no text as its ${field}.`);
		}
		return {name: color.name, value: color.value};
	});
}

/* What one list has and the other has not. */
function differencesOf(before, after) {
	const [old, now] = [before, after].map(colors => new Map(entriesOf(colors).map(entry => [entry.key, entry])));
	return {
		New: [...now.values()].filter(({key}) => !old.has(key)),
		Changed: [...now.values()].filter(({key, value}) => old.has(key) && old.get(key).value !== value),
		Removed: [...old.values()].filter(({key}) => !now.has(key)),
	};
}

/* Shows what a list would change, and where it is from. */
function compare(all, source, reason = '') {
	incoming = {all, source, expected: list};
	say(at.source, source);
	const differences = differencesOf(list, all);
	const isNoChange = isSame(all, list);
	const kept = all.length - differences.New.length - differences.Changed.length;
	say(at.becomes, `${amount(list.length)} ${list.length === 1 ? 'becomes' : 'become'} ${figure(all.length)}`);
	say(at.summary, isNoChange ? 'The same colors in the same order.' : kept ? `Unchanged: ${amount(kept)}, in the order of the file.` : '');
	at.differences.replaceChildren(...Object.entries(differences).filter(([, some]) => some.length).flatMap(([what, some]) => {
		const more = some.length > 8 ? ` and ${figure(some.length - 8)} more` : '';
		return [element('dt', `${what} (${figure(some.length)})`), element('dd', some.slice(0, 8).map(({name}) => called(name)).join(', ') + more)];
	}));
	drawField(at.before, list);
	drawField(at.after, all);
	say(at.obstacle, reason);
	at.replace.disabled = isNoChange;
	if (!at.incoming.open) at.incoming.showModal();
}

/* Draws colors as a field of squares. */
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
	compare(incoming.all, incoming.source, CHANGED);
}

/* Has the browser save a text as a file. */
function download(name, type, text) {
	const link = Object.assign(element('a'), {href: URL.createObjectURL(new Blob([text], {type})), download: name});
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

at.saveJson.onclick = () => download('colors.json', 'application/json', `${JSON.stringify(list, null, 2)}\n`);
/* Of colors with one name only the first is saved, as a path names it. A value that is no color could be anything, and is left out. */
at.saveCss.onclick = () => {
	const properties = entries.map(({name, value}) => ({name: CSS.escape('--' + name), value}));
	const lines = entriesOf(properties).map(({name, value, nth}) => {
		const why = name === '--' ? 'it has no name' : nth > 1 ? 'an earlier color has this name' : !lookOf(value).css && 'its value is no CSS color';
		return why ? `  /* ${name} is left out: ${why} */` : `  ${name}: ${value};`;
	});
	download('colors.css', 'text/css', `:root {\n${lines.join('\n')}\n}\n`);
};
at.choose.onclick = () => at.file.click();
at.file.onchange = () => {
	const [file] = at.file.files;
	tell();
	attempt(async () => compare(colorsOf(await new Response(file).json().catch(() => null)), file.name));
	at.file.value = '';
};
at.replace.onclick = async () => {
	const mine = incoming;
	if (mine.isBusy) return;
	mine.isBusy = true;
	try {
		await make(exchanging(mine.all, mine.expected), `Replaced ${amount(mine.expected.length)} with ${figure(mine.all.length)}.`);
		at.incoming.close();
	} catch (error) {
		mine.isBusy = false;
		if (error.all && at.incoming.open) return compare(mine.all, mine.source, CHANGED);
		say(at.obstacle, error.message);
	}
};
