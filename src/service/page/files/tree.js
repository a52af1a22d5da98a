/* Lists and maps: in JSON, in YAML, in scripts, in property lists. */
const DEPTH = 99; // of lists and maps in each other
const FAILURES = 9; // brackets in a script that do not end, after which no more are tried
const NAMES = ['name', 'title', 'label', 'id'];
const VALUES = ['value', 'hex', '$value', 'color', 'colour', 'code', 'hexcode', 'rgb', 'rgba', 'hsl', 'hsla', 'hsv', 'hsb', 'oklch', 'oklab', 'lab', 'lch', 'cmyk'];
const FORMS = /^(rgba?|hs[lvb]a?|hwb|lab|lch|ok\w+|cmyk|hex\w*|contrast\w*)$/; // of a color that is there already
const AROUND = /^(data|colou?rs?|palettes?|swatches|theme|tokens|extend|items|values(ByMode)?|variables|default|global)$/i; // says nothing of the colors in it

/* JSON, also several values one after the other. */
function* json(text) {
	const all = [];
	for (let at = 0; /[[{]/.test(text[at = yield* afterBlanks(text, at)] ?? '');) {
		const {data, end} = (yield* valueAt(text, at)) ?? {};
		if (!end) return null;
		all.push(data);
		at = end;
		if ((yield* afterBlanks(text, at)) === text.length) return all[1] ? yield* ofTree(all, 'JSON lines') : (yield* ownList(data)) ?? (yield* ofTree(data, 'JSON'));
	}
	return null;
}

function* afterBlanks(text, at) {
	const blanks = /\s{1,9999}/y;
	for (let end = at; ; yield) {
		blanks.lastIndex = end;
		if (!blanks.test(text)) return end;
		end = blanks.lastIndex;
	}
}

/* The form that the service has, in which a value may be any text. */
function* ownList(data, form = 'JSON') {
	const all = Array.isArray(data) ? data : fieldOf(data, 'data');
	if (!Array.isArray(all)) return null;
	const colors = [];
	for (const color of all) {
		const [name, value] = ['name', 'value'].map(field => fieldOf(color, field));
		if (typeof name !== 'string' || typeof value !== 'string' || color.has('alpha') || color.has('opacity')) return null;
		colors.push({name, value});
		yield;
	}
	return {form, colors, skipped: []};
}

/* The objects of a script, as in `export default {red: '#f00'}`. If there are several, each goes by the name of its variable. */
function* script(text) {
	const all = [];
	const other = /[^[{]{1,9999}/y;
	for (let at = 0, failures = 0; at < text.length && failures < FAILURES; yield) {
		other.lastIndex = at;
		if (other.test(text)) at = other.lastIndex;
		if (at === text.length || !/[[{]/.test(text[at])) continue;
		const [begin, name] = /(?:(?:^|[^\w-])([\w-]{1,99})\s*(?::[^=\n]{0,99})?=|\b(?:default|return)|\()\s*$/.exec(text.slice(Math.max(0, at - 250), at)) ?? [];
		const isFirst = begin === undefined && at < 9999 && /^(\s|\/\/[^\n]*\n|\/\*[^]*?\*\/)*$/.test(text.slice(0, at));
		const {data, end} = begin !== undefined || isFirst ? (yield* valueAt(text, at)) ?? {} : {};
		failures += !end && begin !== undefined;
		// of several without names, the first is not all
		if (end && (at || (yield* afterBlanks(text, end)) === text.length) && (yield* ofTree(data, ''))) all.push([name ?? `${all.length}`, data]);
		at = end ?? at + 1;
	}
	if (!all.length) return null;
	// and the colors beside them
	for (let at = 0; at < text.length; yield) {
		const {line, next} = lineAt(text, at);
		const [, name, , color] = /^[ \t]*(?:\w+ )*([\w-]+)\s*=\s*(["'`]?)(#[\da-f]{3,8})\b\2/i.exec(line.slice(0, LINE)) ?? [];
		if (color) all.push([name, color]);
		at = next;
	}
	return yield* ofTree(all.length > 1 ? new Map(all) : all[0][1], 'Script');
}

/* The end of a text in quotes, or 0 if it has none. */
function* endOfQuoted(text, at) {
	const quote = text[at];
	for (let end = at; (end = text.indexOf(quote, end + 1)) > 0; yield) {
		let slashes = 0;
		while (text[end - 1 - slashes] === '\\' && slashes < 99) slashes++;
		if (slashes % 2 === 0) return end + 1;
	}
	return 0;
}

/* What is between quotes. */
function unquoted(text) {
	if (text[0] === '`' && text.includes('${')) return null;
	if (!text.includes('\\')) return text.slice(1, -1);
	try {
		return JSON.parse(text);
	} catch {
		return text.slice(1, -1).replace(/\\(.)/g, '$1');
	}
}

/* {data, end} of a list or map: JSON, also with comments, other quotes and commas, tuples of Python and maps of SCSS. What is computed is null there; undefined if there is no end. Words are texts if they are `keptWords`. */
function* valueAt(text, at, keptWords) {
	const blank = /\s{1,9999}/y;
	const word = /\/\/[^\n]{0,9999}|#(?![\da-f]{3,8}\b)[^\n]{0,9999}|(?:[^\s[\]{}(),:"'`/]|\/(?![/*])){1,9999}(?:\([^()]{0,200}\))?/iy;
	const open = []; // {node, close, key, value, count} of what is not closed yet; without a node, it is a part of what is computed
	for (;; yield) {
		blank.lastIndex = at;
		if (blank.test(text)) at = blank.lastIndex;
		const top = open.at(-1);
		const first = text[at];
		if (first === undefined) return undefined;
		const opened = '[{('.indexOf(first);
		if (opened >= 0) {
			if (open.length > DEPTH) return undefined;
			const isComputed = top && (!top.node || top.count > 0);
			open.push({node: isComputed ? null : opened === 1 ? new Map() : [], close: ']})'[opened], count: 0});
			at++;
		} else if (first === ',') {
			flush(top);
			at++;
		} else if (first === top.close) {
			at++;
			flush(top);
			open.pop();
			if (!open.length) return {data: top.node, end: at};
			const around = open.at(-1);
			// parentheses around one value say nothing
			if (around.node) set(around, first === ')' && top.node?.length === 1 ? top.node[0] : top.node);
		} else if (']})'.includes(first)) {
			return undefined;
		} else if (first === ':') {
			at++;
			if (top.close === ')' && Array.isArray(top.node) && !top.node.length) top.node = new Map();
			if (top.key === undefined && top.count > 0) Object.assign(top, {key: `${top.value ?? top.word}`, value: undefined, count: 0});
			else top.count += 9;
		} else if (first === '/' && text[at + 1] === '*') {
			at = text.indexOf('*/', at + 2) + 2;
			if (at < 2) return undefined;
		} else if (`"'\``.includes(first)) {
			const end = yield* endOfQuoted(text, at);
			if (!end) return undefined;
			const quoted = text.slice(at, end);
			if (top.node) set(top, keptWords ? quoted : unquoted(quoted), quoted);
			at = end;
		} else {
			word.lastIndex = at;
			const [part] = word.exec(text) ?? [];
			if (part === undefined) return undefined;
			at = word.lastIndex;
			if (/^(\/\/|#(?![\da-f]{3,8}$))/i.test(part) || !top.node) continue;
			if (/^-?(\d+\.\d*|\.\d+)$/.test(part)) fractions.add(top.node);
			set(top, wordOf(part, keptWords), part);
		}
	}
}

/* Takes a value over; what has more than one is computed. */
function set(top, value, word) {
	top.count++;
	top.value = top.count > 1 ? null : value;
	if (/^(get|set|async|static)$/.test(top.word ?? 'get')) top.word = word;
}

function wordOf(part, isKept) {
	return /^-?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(part) && !isKept ? +part : isKept || /^(0x|#)/i.test(part) ? part : null;
}

/* At the end of a value or of a pair. */
function flush(top) {
	const {node, key, count, word, value} = top;
	if (node && count > 0) {
		const isSpread = !key && /^\.\.\.|^\*/.test(word);
		if (Array.isArray(node)) node.push(value);
		else if (!isSpread) node.set(key ?? (typeof value === 'string' ? value : /[\w$-]+/.exec(word)?.[0] ?? ''), key === undefined ? null : value);
	}
	Object.assign(top, {key: undefined, value: undefined, word: undefined, count: 0});
}

/* Lines of `name: value` and `- value`, indented for maps and lists in each other. */
function* yaml(text) {
	const open = [{indent: -1, node: new Map()}]; // the maps and lists that a line is in; one that is empty yet has what it is `of`
	/* Puts a value into a map, or without a key into a list; gives its place. */
	const put = (top, key, value) => {
		if (!top.node) putAt(top.of, top.node = key === undefined ? [] : new Map());
		if (Array.isArray(top.node) !== (key === undefined)) throw new Error('a map and a list in one');
		const place = {node: top.node, key: key ?? top.node.length};
		putAt(place, value);
		return place;
	};
	for (let at = 0; at < text.length; yield) {
		const {line, next} = lineAt(text, at);
		at = next;
		if (/^\s*(#|---|%|$)/.test(line)) continue;
		if (line.length > LINE) return null;
		let [, {length: indent}, rest] = /^(\s*)(.*)$/.exec(line);
		const items = /^(-\s+)*(-$)?/.exec(rest)[0].match(/-\s*/g) ?? [];
		let item; // the place of the last one
		for (const {length} of items) {
			// a list may stand as far left as its key
			while (open.at(-1).indent > indent || open.at(-1).indent === indent && !open.at(-1).isKey) open.pop();
			item = put(open.at(-1), undefined, null);
			open.push({indent, of: item});
			rest = rest.slice(length);
			indent += length;
		}
		const [, , key, after = ''] = /^(["']?)([^\s"'#:={}[\],-][^"'#:={}[\],]{0,99}?)\1\s{0,9}:(?:\s+|$)(.*)$/.exec(rest) ?? [];
		const value = yamlValue(key === undefined ? rest : after);
		if (key === undefined) {
			if (!item) return null;
			putAt(item, value);
			continue;
		}
		if (!item) while (open.at(-1).indent >= indent) open.pop();
		const place = put(open.at(-1), key, value);
		if (value === null) open.push({indent, isKey: true, of: place});
	}
	return yield* ofTree(open[0].node, 'YAML');
}

const putAt = ({node, key}, value) => Array.isArray(node) ? node[key] = value : node.set(key, value);

function yamlValue(text) {
	const [, , quoted, list, plain = ''] = /^(["'])(.*?)\1|^\[([-\d.,\s]+)\]|^(#[\da-f]+|[^#]*)/i.exec(text) ?? [];
	return quoted ?? list?.split(',').map(part => part.trim()) ?? (plain.trim() || null);
}

const isMap = node => node instanceof Map;
const fieldOf = (node, key) => isMap(node) ? node.get(key) : Array.isArray(node) ? node[key] : undefined;
const firstOf = (node, most) => {
	const some = [];
	for (const entry of node.entries()) if (some.push(entry) >= most) break;
	return some;
};

/* What references and inheritance in design tokens lead to. */
function lookUp(root) {
	const sets = firstOf(root, 99).map(([, set]) => set); // more are none
	/* A group with what another one brings; a token stays whole. */
	const joined = (base, own) => {
		const all = new Map(base);
		for (const [key, child] of own) all.set(key, isMap(child) && isMap(base.get(key)) && !child.has('$value') ? joined(base.get(key), child) : child);
		return all;
	};
	const at = (way, depth = 0) => {
		const within = set => way.reduce((node, key) => fieldOf(extended(node, depth), key), set);
		// or within one of several sets
		return within(root) ?? within(sets.find(set => within(set) !== undefined));
	};
	const wayOf = text => /^\s*\{([^{}]+)\}\s*$/.exec(text)?.[1].split('.') ?? (/^#\//.test(text) ? text.slice(2).split('/') : undefined);
	/* A group with what it inherits. */
	const extended = (node, depth = 0) => {
		const written = depth < 9 ? fieldOf(node, '$extends') : undefined;
		const way = typeof written === 'string' ? wayOf(written) : undefined;
		const base = way && extended(at(way, depth + 1), depth + 1);
		return isMap(base) ? joined(base, node) : node;
	};
	/* The color of a node, or of the one that it refers to. */
	const resolve = (node, hint, depth = 0) => {
		const written = fieldOf(node, '$ref') ?? node;
		const way = depth < 9 && typeof written === 'string' && (written !== node || /^\s*\{/.test(written)) ? wayOf(written) : undefined;
		if (!way) return ofNode(node, hint);
		const other = at(way);
		return resolve(fieldOf(other, '$value') ?? fieldOf(other, 'value') ?? other, hint, depth + 1);
	};
	return {extended, resolve};
}

/* The color of a map, and the name that it has. */
function leafOf(map, resolve) {
	const fields = new Map([...map].map(([key, value]) => [key.toLowerCase(), value]));
	const field = VALUES.find(field => resolve(fields.get(field), spaceIn(field)));
	// beside `hex`, this may be the name
	const beside = /^hex/.test(field) ? [fields.get('color')].filter(text => /^\p{L}[^(]*$/u.test(text)) : [];
	const name = [...NAMES.map(name => fields.get(name)), ...beside].find(text => typeof text === 'string');
	// others have colors that are called so
	const isLeaf = name !== undefined || ![...fields].some(([key, value]) => typeof value === 'string' && !VALUES.includes(key) && !FORMS.test(key) && ofText(value)?.css);
	const color = !isLeaf ? undefined : field ? {...resolve(fields.get(field), spaceIn(field)), isNamed: true} : ofNode(map);
	const alpha = fields.get('alpha') ?? fields.get('opacity');
	return {name, color: field && color && isNumber(alpha) ? withAlphaOf(color, alpha) : color};
}

const isHex = text => typeof text === 'string' && text[0] === '#' && isColor(text);

/* The way to a list or map that is no color itself, and its entries, if they may be some. */
function insideOf(node, way, name) {
	// one of a list goes by its name
	const here = name !== undefined && typeof way.at(-1) === 'number' ? [...way.slice(0, -1), name] : way;
	const some = isMap(node) || Array.isArray(node) ? firstOf(node, 99) : [];
	if (some.every(([key, child]) => typeof child === 'number' || child === name || /^\$(?!value$|root$)/.test(key))) return {way: here};
	// some maps lead from a color to its name
	const isTurned = isMap(node) && some.every(([key, child]) => typeof child === 'string' && isHex(key)) && some.some(([, child]) => !ofText(child)?.css);
	return {way: here, name, isTurned, entries: node.entries()};
}

/* The colors of nested lists and maps. A name is the way to a color, or what the color has as its name. */
function* ofTree(root, form) {
	const found = [], skipped = [];
	const {extended, resolve} = lookUp(root);
	const open = [];
	const visit = (written, way) => {
		const node = extended(written);
		// a color has fewer
		const {name, color} = isMap(node) ? node.size < 99 ? leafOf(node, resolve) : {} : {color: resolve(node, spaceIn(`${way.at(-1)}`))};
		if (color) return found.push({way: name === undefined ? way : [name], color, isNamed: name !== undefined});
		const inside = insideOf(node, way, name);
		if (!inside.entries) skipped.push({name: labelOf(inside.way), why: 'no color'});
		else if (open.length < DEPTH) open.push(inside);
	};
	visit(root, []);
	for (let top; (top = open.at(-1)); yield) {
		const {done, value: [key, child] = []} = top.entries.next();
		if (done) open.pop();
		else if (top.isTurned && isHex(key)) found.push({way: [`${child}`], color: ofText(key)});
		else if (child !== undefined && child !== top.name && !/^\$(?!value$|root$)/.test(key)) visit(child, /^\$?value$|^\$root$/.test(key) || top.name !== undefined && AROUND.test(key) ? top.way : [...top.way, key]);
	}
	// what is around all colors is no part of their names
	const unnamed = found.filter(({isNamed}) => !isNamed);
	let around = unnamed[0]?.way.findIndex((key, i, way) => !AROUND.test(key) || i === way.length - 1);
	for (const {way} of unnamed) {
		while (around && (way.length <= around || way[around - 1] !== unnamed[0].way[around - 1])) around--;
		yield;
	}
	for (const one of found) {
		const way = one.isNamed ? one.way : one.way.slice(around);
		one.name = way.every(key => typeof key === 'number') ? undefined : labelOf(way);
		yield;
	}
	return yield* judge(form, found, skipped);
}

const labelOf = way => (way.length > 1 ? way.filter(key => key !== 'DEFAULT') : way).join('-');
