/* Lines of text. */
const LINE = 2000; // characters of a line that may be of a color

/* The line at a place, and where the next one is. */
function lineAt(text, at) {
	const rest = /([^\r\n]*)(\r\n?|\n|$)/y;
	rest.lastIndex = at;
	const [all, line] = rest.exec(text);
	return {line, next: at + (all.length || 1)};
}

/* Calls `take` with each line of a text, until it gives false. */
function* eachLine(text, take) {
	for (let at = 0, line; at < text.length; yield) {
		({line, next: at} = lineAt(text, at));
		if (take(line) === false) return false;
	}
	return true;
}

const isComment = line => line.length <= LINE && /^\s*($|[!;]|\/\/|#(?![\da-f]{3,8}\b))/i.test(line);

/* Palettes of GIMP, Inkscape and Krita. */
function* gpl(text) {
	if (!/^GIMP Palette\b/.test(text)) return null;
	const found = [], skipped = [];
	let form = /^\s*((?:\d+\s+){2}\d+)(?:\s+(.*))?$/;
	yield* eachLine(text, line => {
		if (/^Channels:.*RGBA/.test(line)) form = /^\s*((?:\d+\s+){3}\d+)(?:\s+(.*))?$/;
		const [, numbers, name] = form.exec(line.slice(0, LINE)) ?? [];
		const color = numbers && ofParts('rgb', numbers.split(/\s+/), {range: 255});
		if (color) found.push({name: name?.trim() || undefined, color});
		else if (!isComment(line) && !/^(GIMP Palette|(Name|Columns|Channels):)/.test(line)) skipped.push({name: line.slice(0, LINE), why: 'no color'});
	});
	return yield* judge('GIMP palette (.gpl)', found, skipped);
}

/* Lines that begin with numbers: those of X11 and Paint Shop Pro are red, green and blue; those of maps have another one before these. */
function* x11(text) {
	const isJasc = text.startsWith('JASC-PAL');
	const rows = [], skipped = [];
	let width = 9, number = 0;
	const isWhole = yield* eachLine(text, line => {
		if (isComment(line) || isJasc && number++ < 3) return true;
		if (line.length > LINE) return false;
		const [, numbers, rest] = /^\s*((?:(?:-?\d+\.?\d*%?|nv|nan)(?:\s+|$))+)(.*)$/i.exec(line) ?? [];
		const cells = numbers?.trim().split(/\s+/);
		// a name may begin with a number
		if (cells) width = Math.min(width, cells.length);
		if (cells) rows.push({cells, rest: rest.trim()});
		else skipped.push({name: line.trim(), why: 'no color'});
		return rows.length >= skipped.length - 9;
	});
	if (!isWhole || rows.length <= skipped.length || width < 3) return null;
	const plan = yield* numericPlan(rows, Array.from({length: width}, (_, i) => i));
	const found = [];
	for (const {cells, rest} of rows) {
		const name = [...cells.slice(width), rest].join(' ').trim() || (plan ? cells[plan.index] : cells.join(' '));
		found.push({name, color: plan ? ofParts('rgb', [...plan.at, plan.alpha].filter(i => i >= 0).map(i => cells[i]), {kind: 'any'}) ?? NO_CHANNELS : UNSURE});
		yield;
	}
	return yield* judge(isJasc ? 'Paint Shop Pro palette (.pal)' : plan?.index === undefined ? 'X11 colors' : 'Color table', found, skipped);
}

/* Tables of GMT: each line leads from a number and a color to others, at which the next one begins. */
function* ramp(text) {
	const [, model = 'RGB'] = /^#\s*COLOR_MODEL\s*=\s*\+?(\w+)/im.exec(text.slice(0, 9999)) ?? [];
	const space = {RGB: 'rgb', HSV: 'hsv'}[model.toUpperCase()];
	const colorOf = tokens => {
		const parts = tokens.length === 1 ? tokens[0].split(/[/-]/) : tokens;
		return parts.length === 3 ? space && ofParts(space, parts, {range: space === 'rgb' ? 255 : 1}) : ofText(tokens[0]);
	};
	const found = [], others = [];
	let last;
	const isWhole = yield* eachLine(text, line => {
		if (/^\s*(#|$)/.test(line)) return true;
		const all = line.slice(0, LINE).replace(/;.*/, '').trim().split(/\s+/);
		const size = all.length >= 8 ? 3 : 1;
		if (/^[BFN]$/.test(all[0])) return others.push({name: all[0], color: colorOf(all.slice(1)) ?? NO_CHANNELS}) > 0;
		const [from, to] = [all[0], all[1 + size]];
		const [first, second] = [all.slice(1, 1 + size), all.slice(2 + size, 2 + 2 * size)].map(colorOf);
		if (!(parseFloat(from) < parseFloat(to)) || last && last.name !== from || !first || !second) return false;
		if (`${last?.text}` !== `${all.slice(1, 1 + size)}`) found.push({name: from, color: first});
		last = {name: to, text: all.slice(2 + size, 2 + 2 * size)};
		found.push({name: to, color: second});
		return true;
	});
	return isWhole && found.length ? yield* judge('Color table of GMT (.cpt)', [...found, ...others]) : null;
}

// text has #123, too: so few digits are a color only at an end of a line or behind a separator
const COLOR = /#[\da-f]{6,8}\b|#[\da-f]{3,4}\b(?=[\s;,]*$)|\b0x[\da-f]{6,8}\b|\b[a-z]+\([\d\s.,%/-]+\)/i;
const BEHIND = /(?:^|[=|"'`\t:])\s*(#[\da-f]{3,4})\b/i;

/* Lines with a color each, as `Sky #87ceeb` or a row of Markdown. Its name is what stands first of the rest, behind the section in INI and TOML. */
function* lines(text) {
	// broken JSON or XML
	if (/^\s*([{<](?!\?php)|\[\W)/.test(text.slice(0, 999))) return null;
	const found = [], skipped = [];
	let section = '';
	yield* eachLine(text, line => {
		if (/^\s*(\/\/|[!;]|#(\s|$)|$)/.test(line)) return;
		if (line.length > LINE) return skipped.push({name: line.slice(0, LINE), why: 'too long for a line'});
		const spots = [COLOR, BEHIND, /=(.+)/].map(form => form.exec(line)).map(match => match && {written: match.at(-1), index: match.index + match[0].length - match.at(-1).length});
		const marked = spots.slice(0, 2).filter(Boolean).sort((a, b) => a.index - b.index)[0];
		const {written, index} = marked ?? spots[2] ?? {written: '', index: line.length};
		const color = /[{<]/.test(line) ? undefined : ofText(written.split(/["';]/).find(part => part.trim()) ?? '');
		const others = color?.css?.[0] === '#' ? line.match(/#[\da-f]{6}\b/gi) ?? [] : [];
		const [rest] = /[\p{L}\p{N}]([^=|\t]*[\p{L}\p{N}])?|$/u.exec(`${line.slice(0, index)}|${line.slice(index + written.length)}`);
		const name = rest.replace(/^(?:(?:export|public|static|final|const|let|var|val|define|Color) +)+/, '');
		if (new Set(others.map(other => other.toLowerCase())).size > 1) skipped.push({name: line.trim(), why: 'several colors'});
		else if (color) found.push({name: name ? section + name : undefined, color});
		else if (/^\s*\[[^\]]*\]\s*$/.test(line)) section = `${rest}-`;
		else skipped.push({name: line.trim(), why: 'no color'});
	});
	// the same name again and again is a key of another form
	const names = new Set();
	for (const {name, color} of found) {
		names.add(name ?? color.css);
		yield;
	}
	return found.length * 4 > skipped.length && names.size * 2 > found.length ? yield* judge('Lines', found, skipped) : null;
}

/* Colors alone, as one pastes them; a line that begins with a semicolon is a comment. */
function* list(text) {
	const part = /[\r\n]\s{0,99}(?:;|\/\/)[^\r\n]*|([^\S\r\n]{1,999}|[\r\n,;"'])|[\w-]{1,99}\([^()]{0,255}\)|[^\s,;"']{1,255}/y;
	const isArgb = /^;\s*paint\.net/i.test(text);
	const found = [];
	const all = `\n${text}`;
	for (let at = 0; at < all.length; at = part.lastIndex, yield) {
		part.lastIndex = at;
		const [written, blank] = part.exec(all);
		if (blank || /^\s/.test(written)) continue;
		const color = ofText(isArgb ? `0x${written}` : written);
		if (!color) return null;
		found.push({color});
	}
	return yield* judge('List of colors', found);
}
