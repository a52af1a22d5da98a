/* What is a color, in the ways in which files have one. */
const LONGEST = 255; // characters of a color; thousands of parentheses would end the tab
const DEPENDENT = /^(inherit|initial|unset|revert(-layer)?|currentcolor)$|\b(env|attr)\(|--/i;

/* Whether a text is a color of CSS by itself. */
const isColor = text => /^#([\da-f]{3,4}|[\da-f]{6}|[\da-f]{8})$/i.test(text) || text.length <= LONGEST && !DEPENDENT.test(text) && CSS.supports('color', text);

const hexOf = bytes => '#' + bytes.map(byte => Math.round(Math.max(0, Math.min(byte, 255))).toString(16).padStart(2, 0)).join('');

/* Red, green, blue and maybe alpha: of 255, or of 1 if there are fractions, or always 0 or 1 where `isUnit`. */
function ofNumbers(numbers, isUnit) {
	const [r, g, b, a = 1] = numbers;
	const rgb = [r, g, b];
	if (numbers.length > 4 || ![...rgb, a].every(number => parseFloat(number) >= 0 && number <= 255)) return undefined;
	const scale = (isUnit || rgb.some(number => number % 1)) && rgb.every(number => number <= 1) ? 255 : 1;
	const alpha = a > 1 ? a : a * 255;
	return hexOf([...rgb.map(number => number * scale), ...alpha < 255 ? [alpha] : []]);
}

/* Android and Flutter have alpha first. */
function ofArgb(hex) {
	const [, alpha, rgb] = /^#([\da-f]|[\da-f]{2})([\da-f]{3}|[\da-f]{6})$/i.exec(hex.length === 5 || hex.length === 9 ? hex : '') ?? [];
	return !alpha ? hex : /^f+$/i.test(alpha) ? `#${rgb}` : `#${rgb}${alpha}`;
}

/* The color that a text, numbers or an object stand for, as CSS has it; undefined if they stand for none. */
function colorOf(value) {
	if (typeof value === 'string') return ofText(value.trim());
	if (Array.isArray(value)) return value.every(part => typeof part === 'number') ? ofNumbers(value) : undefined;
	if (!value || typeof value !== 'object') return undefined;
	const {r, g, b, a, red, green, blue, alpha, components, colorSpace, hex} = value;
	// Design Tokens, Color Module
	if (Array.isArray(components)) {
		if (typeof hex === 'string' && !(alpha < 1)) return colorOf(hex);
		const parts = components.map((part, i) => /^h(sl|wb)$/.test(colorSpace) && i ? `${part}%` : part).join(' ') + (alpha < 1 ? ` / ${alpha}` : '');
		return [`${colorSpace}(${parts})`, `color(${colorSpace} ${parts})`].find(isColor);
	}
	return ofNumbers([r ?? red, g ?? green, b ?? blue, a ?? alpha ?? 1], true);
}

function ofText(text) {
	if (isColor(text)) return text;
	const bare = text.replace(/^0x/i, '');
	if (/^([\da-f]{6}|[\da-f]{8})$/i.test(bare)) return bare === text ? `#${bare}` : ofArgb(`#${bare}`);
	// as custom properties have them that are put into hsl()
	if (/^[\d.]+(deg)? [\d.]+% [\d.]+%$/.test(text)) return `hsl(${text})`;
	return /^\(?\d[\d\s,.]*\)?$/.test(text) ? ofNumbers(text.match(/[\d.]+/g).map(Number)) : undefined;
}
