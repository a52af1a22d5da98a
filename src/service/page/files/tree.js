/* Lists and maps: in JSON, in YAML, and in scripts. */
const MOST = 2 ** 20; // characters of a script; where it cannot be read, it is tried at each bracket
const NAMES = ['name', 'title', 'label', 'id'];
const VALUES = ['value', 'hex', '$value', 'color', 'colour', 'code', 'hexcode', 'rgb'];
const FORMS = /^(rgba?|hs[lvb]a?|hwb|lab|lch|ok\w+|cmyk|hex\w*|contrast\w*)$/; // of a color that is there already
const AROUND = /^(data|colou?rs?|palettes?|swatches|theme|tokens|extend|items|values(ByMode)?|variables|default|global)$/i; // says nothing of the colors in it

function json(text) {
	if (!/^\s*[[{]/.test(text)) return null;
	let data;
	try {
		data = JSON.parse(text);
	} catch {
		return null;
	}
	return ownList(data) ?? ofTree(data, 'JSON');
}

/* The form that the service has, in which a value may be any text. */
function ownList(data, form = 'JSON') {
	const all = Array.isArray(data) ? data : data?.data;
	if (!Array.isArray(all) || !all.every(color => typeof color?.name === 'string' && typeof color.value === 'string')) return null;
	return {form, colors: all.map(({name, value}) => ({name, value})), skipped: []};
}

/* The objects of a script, as in `export default {red: '#f00'}`. If there are several, each goes by the name of its variable. */
function script(text) {
	if (text.length > MOST) return null;
	const begin = /(?:(?<![\w-])([\w-]+)\s*(?::[^=\n]{0,99})?=|\b(?:default|return)\b|\(|^(?:\s*\/\/[^\n]*\n)*)\s*(?=[[{])/g;
	const all = [];
	for (let match; (match = begin.exec(text));) {
		try {
			const {data, end} = objectAt(text, begin.lastIndex);
			// of several without names, the first is not all
			if ((match.index || !text.slice(end).trim()) && ofTree(data, '')) all.push([match[1] ?? `${all.length}`, data]);
			begin.lastIndex = end;
		} catch {
			// it is no object, or computed
			begin.lastIndex++;
		}
	}
	if (!all.length) return null;
	// and the colors beside them
	for (const [, name, , color] of text.matchAll(/^[ \t]*(?:\w+ )*([\w-]+)\s*=\s*(["'`]?)(#[\da-f]{3,8})\b\2/gim)) all.push([name, color]);
	return ofTree(all.length > 1 ? Object.fromEntries(all) : all[0][1], 'Script');
}

/* Reads JSON, but for comments, quotes, commas and what is computed, which is null. */
function objectAt(text, at) {
	const token = /\s+|\/\*[^]*?\*\/|\/\/[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`|[[\]{}:,]|[^\s[\]{}(),:"'`]+(?:\([^()]*\))?/y;
	token.lastIndex = at;
	const parts = [];
	let depth = 0;
	do {
		const [part] = token.exec(text);
		const last = parts.at(-1);
		if (/^(\s|\/[/*]|\.{3})/.test(part)) continue;
		if (/^[\]},]$/.test(part) && last === ',') parts.pop();
		if (part === ':' && !last.startsWith('"')) parts.push(`"${parts.pop()}"`);
		depth += /^[[{]$/.test(part) - /^[\]}]$/.test(part);
		// more of what is computed
		if (/^[^[\]{}:,]/.test(part) && /^[^[\]{}:,]/.test(last)) continue;
		parts.push(/^["'`]/.test(part) ? JSON.stringify(part.slice(1, -1).replace(/\\(.)/g, '$1')) : part.replace(/^(0x|#).*/, '"$&"'));
	} while (depth);
	return {data: JSON.parse(parts.map(part => /^([[\]{}:,"]|-?(0|[1-9]\d*)(\.\d+)?$)/.test(part) ? part : 'null').join('')), end: token.lastIndex};
}

/* Lines of `name: value`, indented for maps in maps. */
function yaml(text) {
	const root = {};
	const open = [{indent: -1, node: root}]; // the maps that a line is in
	for (const line of linesOf(text)) {
		if (/^\s*(#|---|$)/.test(line)) continue;
		const [, space, , key, rest = ''] = /^(\s*)(["']?)([^\s"'#:={}[\],-][^"'#:={}[\],]{0,99}?)\2\s{0,9}:(?:\s+|$)(.*)$/.exec(line) ?? [];
		if (key === undefined) return null;
		while (open.at(-1).indent >= space.length) open.pop();
		const {node} = open.at(-1);
		const [, , quoted, plain = ''] = /^(["'])(.*?)\1|^(#[\da-f]+|[^#]*)/i.exec(rest);
		const value = quoted ?? plain.trim();
		node[key] = value || {};
		if (!value) open.push({indent: space.length, node: node[key]});
	}
	return ofTree(root, 'YAML');
}

/* The colors of nested lists and maps. A name is the way to a color, or what the color has as its name. */
function ofTree(root, form) {
	const found = [], skipped = [];
	const sets = Object.values(root).slice(0, 99); // more are none
	/* The color of a node, or of the one that it refers to. */
	const resolve = (node, depth = 0) => {
		const [, way] = typeof node === 'string' && depth < 9 && /^\s*\{([^{}]+)\}\s*$/.exec(node) || [];
		if (!way) return colorOf(node);
		const keys = way.split('.');
		const within = set => keys.reduce((at, key) => at?.[key], set);
		// or within one of several sets
		const other = within(root) || within(sets.find(within));
		return resolve(other?.$value ?? other?.value ?? other, depth + 1);
	};
	/* The color of a map, and the name that it has. */
	const leafOf = map => {
		const fields = new Map(Object.entries(map).map(([key, value]) => [key.toLowerCase(), value]));
		const field = VALUES.find(field => resolve(fields.get(field)));
		// beside `hex`, this may be the name
		const beside = /^hex/.test(field) ? [fields.get('color')].filter(text => /^\p{L}[^(]*$/u.test(text)) : [];
		const name = [...NAMES.map(name => fields.get(name)), ...beside].find(text => typeof text === 'string');
		// others have colors that are called so
		const isLeaf = name !== undefined || ![...fields].some(([key, value]) => typeof value === 'string' && !VALUES.includes(key) && !FORMS.test(key) && colorOf(value));
		return {name, value: isLeaf ? resolve(fields.get(field)) ?? colorOf(map) : undefined};
	};
	const walk = (node, way) => {
		const isList = Array.isArray(node);
		const isMap = !isList && !!node && typeof node === 'object';
		const fields = isMap || isList ? Object.entries(node) : [];
		// a color has fewer
		const {name, value} = isMap && fields.length < 99 ? leafOf(node) : {value: resolve(node)};
		if (value) return found.push({way: name === undefined ? way : [name], value, isNamed: name !== undefined});
		// some maps lead from a color to its name
		if (isMap && fields.every(([key, child]) => typeof child === 'string' && /^#/.test(colorOf(key))) && fields.some(([, child]) => !colorOf(child))) return fields.forEach(([key, child]) => found.push({way: [child], value: colorOf(key)}));
		// one of a list goes by its name
		const here = name !== undefined && typeof way.at(-1) === 'number' ? way.with(-1, name) : way;
		const inner = fields.filter(([key, child]) => child !== name && !/^\$(?!value$)/.test(key));
		if (!inner.length || inner.every(([, child]) => typeof child === 'number')) return skipped.push({name: labelOf(here), why: 'no color'});
		for (const [key, child] of inner) walk(child, /^\$?value$/.test(key) || name !== undefined && AROUND.test(key) ? here : [...here, isList ? +key : key]);
	};
	const labelOf = way => (way.length > 1 ? way.filter(key => key !== 'DEFAULT') : way).join('-');
	walk(root, []);
	// what is around all colors is no part of their names
	const unnamed = found.filter(({isNamed}) => !isNamed);
	while (unnamed.length && AROUND.test(unnamed[0].way[0]) && unnamed.every(({way}) => way.length > 1 && way[0] === unnamed[0].way[0])) unnamed.forEach(({way}) => way.shift());
	const colors = found.map(({way, value}) => ({name: way.every(key => typeof key === 'number') ? value : labelOf(way), value}));
	return colors.length ? {form, colors, skipped} : null;
}
