/* Tables of text. What a column means is decided once, from its title or from all that is in it. */
const UNSURE = {css: '', why: 'which of its numbers are red, green and blue is not told'};
const NO_CHANNELS = {css: '', why: 'no color'};
const SAMPLE = 2 ** 14; // characters that tell the separator
const TITLED = /^(hex|hex ?(code|value|triplet)|html|css|rgb|colou?r|value|code)$/; // a column of colors, also of bare digits

/* The form in which this page saves, in which a value may be any text. */
function* ownTable(text) {
	if (!/^name,value\r?\n/.test(text)) return null;
	const colors = [];
	for (const [name, value] of yield* rowsOf(text, ',')) {
		if (value === undefined) return null;
		colors.push({name, value});
		yield;
	}
	return {form: 'CSV', colors: colors.slice(1), skipped: []};
}

/* A table with a column of colors, or with one for each channel. Its begin tells the separator. */
function* table(text) {
	if (/^# QGIS Generated Color Map/.test(text)) return yield* ofRows([['value', 'red', 'green', 'blue', 'alpha', 'label'], ...(yield* rowsOf(text, ','))], 'Color map of QGIS');
	let best, most = 0;
	for (const [comma, form] of [['\t', 'TSV'], [';', 'CSV with semicolons'], [',', 'CSV']]) {
		const found = yield* ofRows(yield* rowsOf(text.slice(0, SAMPLE), comma), form);
		const count = found ? found.colors.length + found.skipped.length / 1000 : 0;
		if (count > most) [best, most] = [[comma, form], count];
	}
	return best ? yield* ofRows(yield* rowsOf(text, best[0]), best[1]) : null;
}

/* RFC 4180. */
function* rowsOf(text, comma) {
	const plain = new RegExp(`[^${comma}\\r\\n]*`, 'y');
	const end = new RegExp(`[^\\S${comma}\\r\\n]*(${comma}|\\r\\n?|\\n|$)`, 'y');
	const rows = [];
	let row = [];
	for (let at = 0; at < text.length; yield) {
		const quoted = text[at] === '"' ? yield* endOfField(text, at) : 0;
		end.lastIndex = quoted;
		if (quoted && end.test(text)) {
			row.push(text.slice(at + 1, quoted - 1).replaceAll('""', '"'));
			at = quoted;
		} else {
			plain.lastIndex = at;
			const [field] = plain.exec(text);
			row.push(field.trim());
			at += field.length;
		}
		end.lastIndex = at;
		const [all, mark] = end.exec(text);
		at += all.length;
		if (mark === comma) continue;
		if (row.length > 1 || row[0]) rows.push(row);
		row = [];
	}
	if (row.length > 0) rows.push(row);
	return rows;
}

/* The end of a field in quotes, in which two of them are one. */
function* endOfField(text, at) {
	for (let end = at; (end = text.indexOf('"', end + 1)) > 0; yield) {
		if (text[end + 1] !== '"') return end + 1;
		end++;
	}
	return 0;
}

/* The titles of columns, as far as they tell channels; some have the space before them. */
function channelsOfTitles(titles) {
	const bare = titles.map(title => title.replace(/\s*[([].*[)\]]$/, '').replace(/[ _-]+(value|channel|%)$/, ''));
	const spaces = ['', ...Object.keys(CHANNELS), 'hsb', 'colou?r'];
	return spaces.map(space => channelsOf(bare.map(title => space ? new RegExp(`^${space}[ _-](.+)$`).exec(title)?.[1] : title))).find(channels => channels);
}

const isNumeric = cell => /^(-?\d+\.?\d*(e[-+]?\d+)?%?|-?\.\d+|nv|nan)$/i.test(cell);

/* Which of three to five columns of numbers without titles are red, green, blue and alpha, and which one is before them; undefined if that is not certain. */
function* numericPlan(rows, columns) {
	const width = columns.length;
	let isRising = rows.length > 1, isCounted = isRising, isBeyond = false, isAlpha = true, last;
	for (const {cells} of rows) {
		const first = cells[columns[0]];
		isRising &&= last === undefined || +first > last;
		isCounted &&= last === undefined || +first === last + 1;
		isBeyond ||= !(first >= 0 && first <= 255);
		isAlpha &&= +cells[columns[width - 1]] === 255;
		last = +first;
		yield;
	}
	const isIndex = isBeyond || isCounted || isRising && rows.length > 2;
	if (width === 3) return {at: columns, alpha: -1};
	if (width === 4 && isIndex !== isAlpha) return isAlpha ? {at: columns.slice(0, 3), alpha: columns[3]} : {at: columns.slice(1), alpha: -1, index: columns[0]};
	return width === 5 && (isIndex || isAlpha) ? {at: columns.slice(1, 4), alpha: columns[4], index: columns[0]} : undefined;
}

/* The column of texts that are colors, {at, count, isMarked, isTitled}, and others. */
function* colorColumn(rows, titles, width) {
	const hexes = []; // the columns that have colors as hex digits
	let best = {rank: 0};
	for (let at = 0; at < width; at++) {
		const isTitled = TITLED.test(titles[at] ?? '') || !!spaceIn(titles[at] ?? '');
		let count = 0, marked = 0, plain = 0, hex = 0;
		for (const row of rows) {
			const color = row[at] ? ofText(row[at], spaceIn(titles[at] ?? '')) : undefined;
			const isSure = color && (color.css ? /^#|\(/.test(color.css) || isTitled : isTitled || color.digits && /\d/.test(color.digits) && /[a-f]/i.test(color.digits));
			count += !!color && (!!color.css || isSure);
			marked += !!isSure;
			plain += !!color?.css;
			hex += row[at]?.[0] === '#' && !!color;
			yield;
		}
		// names may be colors of CSS, too; and numbers are worse than what is a color by itself
		const rank = count + marked + plain / 2;
		if (rank > best.rank) best = {at, rank, count, isMarked: marked * 2 >= count, isTitled};
		if (hex * 2 > rows.length) hexes.push(at);
	}
	return {...best, others: hexes.filter(at => at !== best.at)};
}

/* How to read the colors of rows: {colorOf, used, index, isNamed}; {colorOf} alone gives why that is not certain. */
function* planOf(rows, titles, width, isTitled) {
	const column = yield* colorColumn(rows, titles, width);
	const channels = isTitled ? channelsOfTitles(titles) : undefined;
	const alpha = isTitled ? titles.findIndex(title => ALPHA.includes(title)) : -1;
	if (column.count * 2 >= rows.length - 1 && (column.isMarked || !channels)) {
		const {at} = column;
		const more = column.isTitled ? {isNamed: true} : {};
		const colorOf = row => {
			const color = ofText(row[at] ?? '', spaceIn(titles[at] ?? ''));
			return color && {...alpha >= 0 && row[alpha] ? withAlphaOf(color, row[alpha]) : color, ...more};
		};
		return {colorOf, used: [at, alpha], others: column.others, needsName: true};
	}
	if (channels && new Set(titles).size < titles.length) return {colorOf: () => UNSURE, used: channels.at};
	if (channels) {
		const {space, at} = channels;
		const used = [...at, channels.alpha].filter(i => i >= 0);
		return {colorOf: row => ofParts(space, used.filter(i => at.includes(i) || row[i]).map(i => row[i] ?? ''), {kind: 'row'}), used};
	}
	if (isTitled) return null;
	let numeric = Array.from({length: width}, (_, i) => i);
	for (const row of rows) {
		numeric = numeric.filter(i => isNumeric(row[i] ?? ''));
		yield;
	}
	// in `a=255,0,0`, the first is no name
	if (numeric.length < 3 || rows.some(row => /[=:(]\s*-?[\d.]+$/.test(row[0]))) return null;
	const plan = yield* numericPlan(rows.map(cells => ({cells})), numeric);
	if (!plan) return {colorOf: () => UNSURE, used: numeric};
	const used = [...plan.at, plan.alpha].filter(i => i >= 0);
	return {colorOf: row => ofParts('rgb', used.map(i => row[i]), {kind: 'any'}), used};
}

function* ofRows(all, form) {
	const rows = [];
	for (const row of all) {
		if (!(isComment(row[0]) && (row[0] || row.length === 1)) && !/^INTERPOLATION:/.test(row[0])) rows.push(row);
		yield;
	}
	const full = rows.filter(row => row.length > 1);
	const width = Math.max(0, ...full.slice(0, 9).map(row => row.length));
	if (!width || width > 99) return null;
	const titles = full[0].map(title => title.toLowerCase().replace(/^colou?r[ _-]?(?=.)/, ''));
	const isTitled = full[0] === rows[0] && full.length > 1 && !full[0].some(cell => isNumeric(cell) || /^#|\w\(\s*\d|^(?=\D*\d)[\da-f]{6,8}$/i.test(cell)) && (full[1].some(isNumeric) || full[0].some(cell => TITLED.test(cell.toLowerCase())) || titles.some(title => NAMES.includes(title)));
	const data = isTitled ? full.slice(1) : full;
	const plan = yield* planOf(data, isTitled ? titles : [], width, isTitled);
	if (!plan) return null;
	const others = Array.from({length: width}, (_, i) => i).filter(i => !plan.used.includes(i));
	const isText = cell => /\p{L}/u.test(cell) && !/^#|\(/.test(ofText(cell)?.css);
	const known = NAMES.map(name => titles.indexOf(name)).filter(i => isTitled && others.includes(i));
	const named = known.find(i => titles[i] !== 'id') ?? others.find(i => data.slice(0, 999).some(row => isText(row[i] ?? ''))) ?? known[0] ?? others[0];
	if (named === undefined && plan.needsName) return null;
	const found = [];
	const skipped = (plan.others ?? []).map(i => ({name: isTitled ? titles[i] : `column ${i + 1}`, why: 'another column of colors'}));
	for (const row of rows) {
		yield;
		if (isTitled && row === rows[0]) continue;
		const color = row.length > 1 ? plan.colorOf(row) : undefined;
		if (color) found.push({name: named === undefined ? undefined : row[named] ?? '', color});
		else if (row !== rows[0] || isTitled || !row[0]) skipped.push({name: row[named ?? 0] ?? row[0], why: 'no color'});
	}
	return yield* judge(form, found, skipped);
}
