/* Decides what numbers and bare digits mean, once for all of a file, from the range of all of them. What cannot be told is skipped, and it is said why. */
const BITS = [1023, 4095, 65535]; // of 10, 12 and 16 bits

/* Colors by their space, of channels from 0 to 1; those of Lab and LCH, and hues, are as CSS has them. */
const MODELS = {
	rgb: n => hexOf(n.map(part => 255 * part)),
	wide: n => `color(display-p3 ${n.map(round).join(' ')})`,
	gray: ([n]) => hexOf([n, n, n].map(part => 255 * part)),
	// inks: only a profile would tell the right look
	cmyk: ([c, m, y, k]) => hexOf([c, m, y].map(ink => 255 * (1 - ink) * (1 - k))),
	hsl: ([h, s, l]) => `hsl(${round(h)} ${round(100 * s)}% ${round(100 * l)}%)`,
	hsv: ([h, s, v]) => hexOf([5, 3, 1].map(n => (n + h / 60) % 6).map(k => 255 * v * (1 - s * Math.max(0, Math.min(k, 4 - k, 1))))),
	hwb: ([h, w, b]) => `hwb(${round(h)} ${round(100 * w)}% ${round(100 * b)}%)`,
};
for (const space of ['lab', 'lch', 'oklab', 'oklch']) MODELS[space] = ([l, ...others]) => `${space}(${[`${round(l * (space[0] === 'o' ? 100 : 1))}%`, ...others.map(round)].join(' ')})`;

/* A color of CSS with an alpha from 0 to 1. */
const withAlpha = (css, alpha = 1) => alpha >= 1 ? css : css[0] === '#' ? css + hexOf([alpha * 255]).slice(1) : css.replace(')', ` / ${round(alpha)})`);

/* What a group of numbers has at most: 1, 100, 255 or more; or why that cannot be told. */
function rangeOf({least, most, isFraction, isPercent}, usual, kind) {
	if (isPercent) return least < 0 || most > 100 ? 'a channel is beyond 100%' : 100;
	if (least < 0) return 'a channel is below 0';
	if (!most) return 1;
	if (most <= 1) return isFraction || /^map/.test(kind) ? 1 : 'channels of 0 and 1 alone may be of 1 or of more';
	if (usual === 100) return most <= 100 ? 100 : 'a channel is beyond 100';
	// numbers that nothing calls a color may be anything
	if (most === 100 || most < 100 && (isFraction || kind === 'any')) return `channels of 0 to ${most} may be of 100 or of 255`;
	return most <= 255 ? 255 : BITS.includes(most) ? most : `channels of 0 to ${most} are of no usual range`;
}

/* Gathers {least, most, isFraction, isPercent} of some channels of all colors. */
function* extentOf(colors, from, to = 9) {
	const extent = {least: Infinity, most: -Infinity, isFraction: false, isPercent: false};
	for (const {numbers, percents, isFraction} of colors) {
		for (let i = from; i < Math.min(to, numbers.length); i++) {
			extent.least = Math.min(extent.least, numbers[i]);
			extent.most = Math.max(extent.most, numbers[i]);
			extent.isPercent ||= percents[i];
		}
		extent.isFraction ||= isFraction;
		yield;
	}
	return extent;
}

/* A function from a color of numbers to its {css}, or to {why} it has none. */
function* meaningOf(space, colors) {
	const {odd, wide, range: given, kind} = colors[0];
	if (odd) return () => ({why: `a color in ${odd}`});
	const isHue = /^h/.test(space);
	const isLab = /la?[bc]h?$/.test(space);
	const extent = yield* extentOf(colors, isHue ? 1 : 0, isLab ? 1 : 9);
	let range = given ?? (isLab ? labRange(space, extent) : rangeOf(extent, space === 'rgb' ? 255 : 100, kind));
	const hues = isHue ? yield* extentOf(colors, 0, 1) : {};
	const turn = isHue && range === 1 && hues.most <= 1 && hues.isFraction ? 360 : 1;
	if (isHue && (hues.least < -360 || hues.most > 360)) range = 'a hue is beyond 360';
	if (wide && range === 1) space = 'wide';
	const alphas = yield* extentOf(colors.filter(({alpha}) => alpha !== undefined).map(({alpha, percents, numbers}) => ({numbers: [alpha], percents: [percents[numbers.length]]})), 0);
	const of = alphas.most <= 1 && !alphas.isPercent ? 1 : alphas.isPercent || range === 100 ? 100 : alphas.most > 100 && alphas.most <= range ? range : alphas.most === -Infinity ? 1 : NaN;
	if (alphas.least < 0 || alphas.most > of || isNaN(of)) range = typeof range === 'string' ? range : `alphas of 0 to ${alphas.most} are of no certain range`;
	return ({numbers, alpha, isFraction}) => {
		if (typeof range === 'string') return {why: range};
		// of one range, this one is nearly black; of another, not
		if (range > 1 && !isLab && isFraction && extent.most > 1 && Math.max(...numbers.slice(isHue)) <= 1 && numbers.some(n => n % 1)) return {why: 'its channels are of another range'};
		const units = numbers.map((n, i) => isLab ? n : isHue && !i ? n * turn : n / range);
		return {css: withAlpha(MODELS[space](units), alpha === undefined ? 1 : alpha / of)};
	};
}

/* Lightness of Lab is of 100; that of OKLab of 1. */
const labRange = (space, {least, most}) => least >= 0 && (/^ok/.test(space) ? most <= 1 : most > 1 && most <= 100) ? 1 : 'its lightness is of no usual range';

/* Which of red, green, blue or alpha comes first in digits, and whether bare ones are colors. */
function* orderOf(colors, isStyle) {
	let begins = 0, ends = 0, eights = 0;
	let differs, isSure, hasDigit, hasLetter;
	for (const {digits, mark, isNamed} of colors) {
		isSure ||= mark || isNamed;
		hasDigit ||= /\d/.test(digits);
		hasLetter ||= /[a-f]/i.test(digits);
		if (digits.length === 8) {
			eights++;
			begins += /^ff/i.test(digits);
			ends += /ff$/i.test(digits);
			differs ||= digits.toLowerCase() !== colors[0].digits.toLowerCase();
		}
		yield;
	}
	const isFirst = eights && begins === eights && ends < eights;
	const isLast = eights && ends === eights && begins < eights;
	return ({digits, mark}) => {
		if (!isSure && !(hasDigit && hasLetter && colors.length > 1)) return {why: 'digits without a mark may be anything'};
		const hex = `#${digits}`;
		if (digits.length === 6 || isLast || begins === eights && ends === eights) return {css: mark || digits.length === 6 ? hex : hex.slice(0, 7)};
		if (mark && !(isFirst && differs && !isStyle)) return {css: hex};
		return isFirst && !mark ? {css: ofArgb(hex)} : {why: 'alpha may be first or last'};
	};
}

/* Numbers without a space, as custom properties have them: `uses` are the functions that they are put into. */
function* spaceOf(colors, uses) {
	const [hues, others] = [yield* extentOf(colors, 0, 1), yield* extentOf(colors, 1)];
	const may = {hsl: others.most <= 100 && hues.most <= 360, rgb: Math.max(hues.most, others.most) <= 255};
	const [space, other] = Object.keys(may).filter(space => may[space] && (!uses.size || uses.has(space)));
	return space && !other ? space : undefined;
}

/* Tells the colors of a file: {form, colors, skipped, rough} of `found`, which has {name, color} with what `ofText` and the like give. */
function* judge(form, found, skipped = [], uses) {
	const groups = new Map();
	for (const {color} of found) {
		color.group = 'css' in color ? '' : color.digits ? `digits ${color.mark ?? ''}` : `${color.space} ${color.kind ?? ''} ${color.range ?? ''}`;
		if (!groups.has(color.group)) groups.set(color.group, []);
		groups.get(color.group).push(color);
		yield;
	}
	const meanings = new Map([['', color => color]]);
	for (const [group, colors] of groups) {
		if (!group) continue;
		const [{space, digits}] = colors;
		const known = space === 'bare' ? yield* spaceOf(colors, uses) : space;
		meanings.set(group, digits ? yield* orderOf(colors, !!uses) : known ? yield* meaningOf(known, colors) : () => ({why: 'its numbers may be red, green, blue, or hue, saturation, lightness'}));
	}
	const colors = [], rough = [];
	for (const {name, color} of found) {
		const {css, why} = meanings.get(color.group)(color);
		if (css) colors.push({name: name ?? css, value: css});
		else skipped.push({name: name ?? color.digits ?? color.numbers?.join(' ') ?? '', why});
		if (css && color.space === 'cmyk') rough.push(name ?? css);
		yield;
	}
	return found.length ? {form, colors, skipped, rough} : null;
}
