/* Colors in XML: of Android, Windows, Office, QGIS, Scribus, and in property lists. */
const ELEMENT = /<(\/?)([\w:.-]{1,99})((?:\s{1,99}[\w:.-]{1,99}\s{0,9}=\s{0,9}(?:"[^"]{0,999}"|'[^']{0,999}')){0,99})\s{0,99}(\/?)>([^<]{0,999})/y;
const entities = {lt: '<', gt: '>', quot: '"', apos: "'", amp: '&'};
const plain = text => text.replace(/&(?:#(x?)([\da-f]{1,6})|(\w+));/gi, (all, x, code, name) => name ? entities[name] ?? all : String.fromCodePoint(parseInt(code, x ? 16 : 10))).trim();
const local = name => name.replace(/.*:/, '').toLowerCase();

/* Calls `take` with the elements of a text one after the other: {name, fields, text, isEnd, isWhole}. */
function* elementsOf(text, take) {
	for (let at = text.indexOf('<'); at >= 0; yield) {
		if (text.startsWith('<!--', at)) {
			const end = text.indexOf('-->', at);
			at = end < 0 ? -1 : text.indexOf('<', end);
			continue;
		}
		ELEMENT.lastIndex = at;
		const [, end, name, attributes, whole, inner] = ELEMENT.exec(text) ?? [];
		if (name) {
			const fields = new Map();
			for (const [, key, , value] of attributes.matchAll(/([\w:.-]+)\s*=\s*(["'])(.*?)\2/gs)) fields.set(local(key), plain(value));
			take({name: local(name), fields, text: plain(inner), isEnd: !!end, isWhole: !!whole});
		}
		at = text.indexOf('<', at + 1);
	}
}

function* xml(text) {
	if (!/^\s*</.test(text.slice(0, 999))) return null;
	if (/<plist\b/.test(text.slice(0, 999))) return yield* plist(text);
	const found = [], skipped = [];
	const begin = text.slice(0, 2 ** 16);
	const isArgb = /<resources\b|\bxmlns:x\s*=|schemas\.microsoft/.test(begin);
	yield* elementsOf(text, ({name: element, fields, text, isEnd}) => {
		const field = ['color', 'rgb', 'hex', 'cmyk', 'tints'].find(field => fields.has(field));
		const isColored = /color$|brush$|^item$/.test(element) && /^[#@\w(]/.test(text);
		const name = ['name', 'key', 'label', 'title', 'id', 'quantity', 'value'].map(key => fields.get(key)).find(text => text);
		if (isEnd || !field && !isColored && !channelsOf([...fields.keys()]) || name === undefined) return;
		const written = field ? fields.get(field) : text;
		const color = isArgb && /^#[\da-f]{4,8}$/i.test(written) ? {css: ofArgb(written)} : colorIn(fields, field, written);
		if (color) found.push({name, color});
		else if (isColored || field) skipped.push({name, why: `${written} is no color`});
	});
	return yield* judge(/<resources\b/.test(begin) ? 'Android colors' : 'XML', found, skipped);
}

/* The color of an element with these attributes. */
function colorIn(fields, field, written) {
	// Scribus and CorelDRAW
	const space = {rgb: 'rgb', cmyk: 'cmyk', hsb: 'hsv', lab: 'lab'}[(fields.get('space') ?? fields.get('cs') ?? '').toLowerCase()];
	if (field === 'tints') return space && ofParts(space, written.split(','), {range: space === 'lab' ? undefined : 1});
	if (field === 'cmyk') return /^#[\da-f]{8}$/i.test(written) ? ofParts('cmyk', written.slice(1).match(/../g).map(pair => parseInt(pair, 16)), {range: 255}) : undefined;
	const {space: known, at, alpha} = field ? {} : channelsOf([...fields.keys()]) ?? {};
	const all = [...fields.values()];
	if (known && (!space || space === known)) return ofParts(known, [...at, alpha].filter(i => i >= 0).map(i => all[i]), {kind: 'map'});
	const color = written && ofText(written);
	const part = fields.get('alpha') ?? fields.get('opacity');
	return color && part ? withAlphaOf(color, part) : color;
}

/* Property lists of Apple, as maps in maps. */
function* plist(text) {
	const root = new Map();
	const open = [{node: root}];
	let key;
	yield* elementsOf(text, ({name, text, isEnd, isWhole}) => {
		const {node} = open.at(-1);
		const isGroup = name === 'dict' || name === 'array';
		if (name === 'key' && !isEnd) key = text;
		if (isGroup && isEnd && open.length > 1) open.pop();
		if (isEnd || !/^(dict|array|real|integer|string)$/.test(name) || isGroup && isWhole) return;
		const child = name === 'dict' ? new Map() : name === 'array' ? [] : text;
		if (Array.isArray(node)) node.push(child);
		else node.set(key ?? 'colors', child);
		if (isGroup) open.push({node: child});
	});
	return yield* ofTree(root.size === 1 && isMap(root.get('colors')) ? root.get('colors') : root, 'Property list');
}
