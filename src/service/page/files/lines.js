/* Lines and tables of text. */
const linesOf = text => text.split(/\r\n?|\n/);

/* Palettes of GIMP, Inkscape and Krita. */
const gpl = text => /^GIMP Palette\b/.test(text) ? triples(text, 'GIMP palette (.gpl)') : null;

/* Palettes of X11: each line red, green, blue and a name. */
function x11(text) {
	const read = triples(text, 'X11 colors');
	return read.colors.length > read.skipped.length ? read : null;
}

function triples(text, form) {
	const colors = [], skipped = [];
	for (const line of linesOf(text)) {
		const [, r, g, b, written] = /^\s*(\d+)\s+(\d+)\s+(\d+)(?:\s+([^]*))?$/.exec(line) ?? [];
		const value = r && ofNumbers([+r, +g, +b]);
		if (value) colors.push({name: written?.trim() || value, value});
		else if (!/^\s*([#!].*|GIMP Palette|(Name|Columns|Channels):.*)?$/.test(line)) skipped.push({name: line, why: 'no color'});
	}
	return {form, colors, skipped};
}

/* The form in which this page saves, in which a value may be any text. */
const ownTable = text => /^name,value\r?\n/.test(text) ? ownList(rowsOf(text, ',').slice(1).map(([name, value]) => ({name, value})), 'CSV') : null;

/* A table with a column of colors. Its begin tells the separator. */
function table(text) {
	const count = ([comma]) => ofRows(rowsOf(text.slice(0, 2 ** 16), comma))?.colors.length ?? 0;
	const [best] = [['\t', 'TSV'], [';', 'CSV with semicolons'], [',', 'CSV']].sort((a, b) => count(b) - count(a));
	return count(best) ? ofRows(rowsOf(text, best[0]), best[1]) : null;
}

/* RFC 4180. */
function rowsOf(text, comma) {
	const field = new RegExp(`(?:"([^"]*(?:""[^"]*)*)"|([^${comma}\\r\\n]*))(${comma}|\\r\\n?|\\n|$)`, 'y');
	const rows = [[]];
	for (let match; field.lastIndex < text.length && (match = field.exec(text));) {
		const [, quoted, plain, end] = match;
		rows.at(-1).push(quoted?.replaceAll('""', '"') ?? plain.trim());
		if (end !== comma) rows.push([]);
	}
	return rows.filter(row => row.length > 1 || row[0]);
}

function ofRows(rows, form) {
	const full = rows.filter(row => row.length > 1);
	const width = Math.max(0, ...full.slice(0, 9).map(row => row.length));
	if (width > 99) return null;
	const columns = [1, 3].flatMap(span => Array.from({length: Math.max(0, width - span + 1)}, (_, at) => {
		const valueOf = row => colorOf(span === 1 ? row[at] : row.slice(at, at + span).map(cell => +(cell || NaN)));
		const values = full.map(valueOf).filter(Boolean);
		// names may be colors of CSS, too
		return {at, span, valueOf, count: values.length, rank: values.length + values.filter(value => /^#|\(/.test(value)).length};
	}));
	const column = columns.sort((a, b) => b.rank - a.rank)[0];
	if (!column?.count || column.count * 2 < rows.length - 1) return null;
	const {at, span, valueOf} = column;
	const others = Array.from({length: width}, (_, i) => i).filter(i => i < at || i >= at + span);
	const isText = cell => /\p{L}/u.test(cell) && !/^#|\(/.test(colorOf(cell) ?? cell);
	const titles = rows[0].map(title => title.toLowerCase().replace(/^colou?r[ _-]?/, ''));
	const known = NAMES.map(name => titles.indexOf(name)).filter(i => others.includes(i));
	const named = known.find(i => titles[i] !== 'id') ?? others.find(i => full.slice(full.length > 1).some(row => isText(row[i] ?? ''))) ?? known[0];
	if (named === undefined && span === 1) return null;
	const colors = [], skipped = [];
	rows.forEach((row, i) => {
		const value = row.length > 1 && valueOf(row);
		if (value) colors.push({name: named === undefined ? value : row[named] ?? '', value});
		else if (i || row.length === 1 && !/^[#!]/.test(row[0])) skipped.push({name: row[named ?? 0] ?? row[0], why: 'no color'});
	});
	return {form, colors, skipped};
}

// text has #123, too: so few digits are a color only at an end of a line or behind a separator
const COLOR = /#[\da-f]{6,8}\b|#[\da-f]{3,4}\b(?:(?=[\s;,]*$)|(?<=(?:^|[=|"'`\t:])\s*#\w+))|\b0x[\da-f]{6,8}\b|\b[a-z]+\([\d\s.,%/-]+\)/i;

/* Lines with a color each, as `Sky #87ceeb` or a row of Markdown. Its name is what stands first of the rest, behind the section in INI and TOML. */
function lines(text) {
	// broken JSON or XML
	if (/^\s*([{<]|\[\W)/.test(text)) return null;
	const colors = [], skipped = [];
	let section = '';
	for (const line of linesOf(text)) {
		if (/^\s*(\/\/|[!;]|#(\s|$)|$)/.test(line)) continue;
		const {0: written, index} = COLOR.exec(line) ?? /(?<==).+|$/.exec(line);
		const value = /[{<]/.test(line) ? undefined : colorOf(written.split(/["';]/).find(part => part.trim()));
		const [rest] = /[\p{L}\p{N}]([^=|\t]*[\p{L}\p{N}])?|$/u.exec(`${line.slice(0, index)}|${line.slice(index + written.length)}`);
		const name = rest.replace(/^(?:(?:export|public|static|final|const|let|var|val|define|Color) +)+/, '');
		if (value) colors.push({name: name ? section + name : value, value});
		else if (/^\s*\[[^\]]*\]\s*$/.test(line)) section = `${rest}-`;
		else skipped.push({name: line.trim(), why: 'no color'});
	}
	// the same name again and again is a key of another form
	return colors.length * 4 > skipped.length && new Set(colors.map(({name}) => name)).size * 2 > colors.length ? {form: 'Lines', colors, skipped} : null;
}

/* Colors alone, as one pastes them. */
function list(text) {
	const parts = text.match(/[\w-]+\([^()]*\)|[^\s,;"']+/g) ?? [];
	return parts.length && parts.every(colorOf) ? {form: 'List of colors', colors: parts.map(colorOf).map(value => ({name: value, value})), skipped: []} : null;
}
