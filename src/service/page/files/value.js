/* Reads and writes files. Its source
   has comments. */
/* What is a color, in the ways in which files have one. What is a color of CSS is one by itself; what numbers and bare digits mean is decided once, for all of a file (`judge`). */
const LONGEST = 255; // characters of a color; thousands of parentheses would end the tab
const DEPENDENT = /^(inherit|initial|unset|revert(-layer)?|currentcolor)$|\b(env|attr)\(|--/i;

/* Whether a text is a color of CSS by itself. */
const isColor = text => /^#([\da-f]{3,4}|[\da-f]{6}|[\da-f]{8})$/i.test(text) || text.length <= LONGEST && !DEPENDENT.test(text) && CSS.supports('color', text);

const hexOf = bytes => '#' + bytes.map(byte => Math.round(Math.max(0, Math.min(byte, 255))).toString(16).padStart(2, 0)).join('');
const round = number => +number.toFixed(3);

/* The channels of each space, by the names that they have in titles and keys. */
const CHANNELS = {
	rgb: [['r', 'red'], ['g', 'green'], ['b', 'blue']],
	cmyk: [['c', 'cyan'], ['m', 'magenta'], ['y', 'yellow'], ['k', 'key', 'black']],
	hsl: [['h', 'hue'], ['s', 'sat', 'saturation'], ['l', 'lum', 'luminance', 'light', 'lightness']],
	hsv: [['h', 'hue'], ['s', 'sat', 'saturation'], ['v', 'value', 'b', 'bri', 'brightness']],
	lab: [['l', 'l*', 'lightness'], ['a', 'a*'], ['b', 'b*']],
	lch: [['l', 'l*', 'lightness'], ['c', 'c*', 'chroma'], ['h', 'h*', 'hue']],
};
const ALPHA = ['a', 'alpha', 'opacity'];

/* {space, at, alpha}: which of some names are the channels of a space, and its alpha. */
function channelsOf(names) {
	const placeOf = written => names.findIndex(name => written.includes(name));
	const [space, channels] = Object.entries(CHANNELS).find(([, channels]) => channels.every(written => placeOf(written) >= 0)) ?? [];
	if (!space) return undefined;
	const at = channels.map(placeOf);
	const alpha = placeOf(ALPHA);
	return {space, at, alpha: at.includes(alpha) ? -1 : alpha};
}

/* The space that a name ends with, as in `brand-hsl`. */
const spaceIn = name => /(?:^|[\W_])(rgb|hsl|hsv|hsb|hwb|cmyk|oklab|oklch|lab|lch)a?$/i.exec(name)?.[1].toLowerCase().replace('hsb', 'hsv');

/* Android, Flutter and Windows have alpha first. */
function ofArgb(hex) {
	const [, alpha, rgb] = /^#([\da-f]|[\da-f]{2})([\da-f]{3}|[\da-f]{6})$/i.exec(hex.length === 5 || hex.length === 9 ? hex : '') ?? [];
	return !alpha ? hex : /^f+$/i.test(alpha) ? `#${rgb}` : `#${rgb}${alpha}`;
}

/* What a text may be: {css} of what is certain, {digits} of bare ones, {space, parts} of numbers; `hint` is the space of numbers that do not name theirs. Undefined if it is no color. */
function ofText(written, hint) {
	const text = written.trim();
	if (text.length > LONGEST) return undefined;
	const [, mark, digits] = /^(#|0x)?([\da-f]{6}|[\da-f]{8})$/i.exec(text) ?? [];
	if (digits) return mark === '#' && digits.length === 6 ? {css: text} : mark && mark !== '#' ? {css: ofArgb(`#${digits}`)} : {digits, mark};
	if (isColor(text)) return {css: text};
	const [, called, inner] = /^(?:device-)?(cmyk|hs[vb])\(([^()]*)\)$/i.exec(text) ?? [];
	const parts = /^[([]?\s*-?\d[-\d\s,.%/]*(deg\b[-\d\s,.%/]*)?[)\]]?$/.test(inner ?? text) ? (inner ?? text).match(/-?[\d.]+%?/g) : [];
	// as custom properties have them that are put into hsl()
	const isHsl = /^[^%]+[^\d%][\d.]+%[^\d%]+[\d.]+%[^%]*$/.test(text);
	return ofParts(called ? spaceIn(called) : isHsl ? 'hsl' : hint ?? 'rgb', parts);
}

const isNumber = part => typeof part === 'number' || typeof part === 'string' && /^\s*(-?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?%?|0x[\da-f]+)\s*$/i.test(part);

/* The same of channels, as numbers or as they are written. */
function ofParts(space, parts, more) {
	const count = space === 'cmyk' ? 4 : 3;
	if (parts.length < count || parts.length > count + 1 || !parts.every(isNumber)) return undefined;
	const numbers = parts.map(part => parseFloat(/^\s*0x/i.test(part) ? Number(part) : part));
	const isFraction = parts.slice(0, count).some((part, i) => numbers[i] % 1 || typeof part === 'string' && part.includes('.'));
	const percents = parts.map(part => /%/.test(part));
	return {space, numbers: numbers.slice(0, count), alpha: numbers[count], percents, isFraction, ...more};
}

/* The same of a color and its alpha, which stands beside it. */
function withAlphaOf(color, alpha) {
	const hex = color.digits?.length === 6 ? color.digits : /^#(.{6})$/.exec(color.css)?.[1];
	const numbers = hex?.match(/../g).map(pair => parseInt(pair, 16));
	return numbers ? ofParts('rgb', [...numbers, alpha], {kind: 'digits', range: 255}) : parseFloat(alpha) === 1 ? color : {css: '', why: 'its alpha stands beside it'};
}

/* The same of a list or map in JSON and the like; `fractions` has those in which numbers are written with a point. */
function ofNode(node, hint) {
	if (typeof node === 'string') return ofText(node, hint);
	if (Array.isArray(node)) return ofParts(hint ?? 'rgb', node, {kind: hint ? 'list' : 'any', ...fractions.has(node) && {isFraction: true}});
	if (!isMap(node)) return undefined;
	const [components, alpha, hex] = ['components', 'alpha', 'hex'].map(key => node.get(key));
	const space = node.get('colorSpace') ?? node.get('color-space') ?? node.get('Color Space');
	// Design Tokens, Color Module
	if (Array.isArray(components)) {
		if (typeof hex === 'string' && !(alpha < 1)) return ofText(hex);
		const parts = components.map((part, i) => /^h(sl|wb)$/.test(space) && i ? `${part}%` : part).join(' ') + (alpha < 1 ? ` / ${alpha}` : '');
		const css = [`${space}(${parts})`, `color(${space} ${parts})`].find(isColor);
		return css && {css};
	}
	// Xcode's
	return ofChannels(isMap(components) ? components : node, space);
}

function ofChannels(map, space) {
	if (map.size > 99) return undefined; // more are not channels alone
	const fields = [...map];
	const found = channelsOf(fields.map(([key]) => `${key}`.toLowerCase().replace(/ component$/, '')));
	const parts = found && [...found.at, found.alpha].filter(i => i >= 0).map(i => fields[i][1]);
	const color = found && ofParts(found.space, parts, {kind: 'map', ...fractions.has(map) && {isFraction: true}});
	if (!color || !space || found.space !== 'rgb' || /srgb$|^(rgb|calibrated)$/i.test(space)) return color;
	return {...color, kind: `map in ${space}`, [/^(display-)?p3$/i.test(space) ? 'wide' : 'odd']: space};
}
const fractions = new WeakSet();
