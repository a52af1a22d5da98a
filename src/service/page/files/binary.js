/* Swatches of Adobe's programs: numbers with the highest byte first, names in UTF-16. */
const nameAt = (bytes, at, length) => new TextDecoder('utf-16be', {ignoreBOM: true}).decode(bytes.subarray(at, at + 2 * length)).replace(/\0$/, '');
const round = number => +number.toFixed(3);

/* Colors by their model, of numbers from 0 to 1; a and b of Lab are those of CSS. */
const MODELS = {
	RGB: n => hexOf([0, 1, 2].map(i => 255 * n(i))),
	Gray: n => hexOf([255, 255, 255].map(most => most * n(0))),
	LAB: n => `lab(${round(100 * n(0))}% ${round(n(1))} ${round(n(2))})`,
	// inks: only a profile would tell the right look
	CMYK: n => hexOf([0, 1, 2].map(i => 255 * (1 - n(i)) * (1 - n(3)))),
};
const SPACES = {0: ['RGB', n => n / 65535], 2: ['CMYK', n => 1 - n / 65535], 7: ['LAB', (n, i) => i ? (n << 16 >> 16) / 100 : n / 10000], 8: ['Gray', n => n / 10000], 9: ['CMYK', n => n / 10000]};

function ofModels(form, all) {
	const valued = all.map(({name, model, n}) => ({name, model, value: MODELS[model]?.(n)}));
	const colors = valued.filter(({value}) => value).map(({name, value}) => ({name: name ?? value, value}));
	const skipped = valued.filter(({value}) => !value).map(({name = '', model}) => ({name, why: `a color in ${model}`}));
	return {form, colors, skipped, rough: valued.filter(({model}) => model === 'CMYK').map(({name, value}) => name ?? value)};
}

/* Adobe Swatch Exchange: blocks, of which some are colors. */
function ase(bytes) {
	const view = new DataView(bytes.buffer, bytes.byteOffset);
	if (bytes.length < 12 || view.getUint32(0) !== 0x41534546) return null;
	const all = [];
	for (let at = 12; at + 6 <= bytes.length; at += 6 + view.getUint32(at + 2)) {
		// others begin and end groups
		if (view.getUint16(at) !== 1) continue;
		const length = view.getUint16(at + 6);
		const model = at + 8 + 2 * length;
		all.push({name: nameAt(bytes, at + 8, length), model: String.fromCharCode(...bytes.subarray(model, model + 4)).trim(), n: i => view.getFloat32(model + 4 + 4 * i)});
	}
	return ofModels('Adobe swatches (.ase)', all);
}

/* Photoshop's swatches: colors without names, and mostly the same again with names. */
function aco(bytes) {
	const view = new DataView(bytes.buffer, bytes.byteOffset);
	const [version, count] = bytes.length < 4 ? [] : [view.getUint16(0), view.getUint16(2)];
	const end = 4 + 10 * count;
	if (!count || version > 2 || !version || bytes.length < end) return null;
	if (version === 1 && bytes.length > end + 4) return aco(bytes.subarray(end));
	const all = [];
	for (let at = 4; all.length < count; at += 10) {
		const start = at + 2;
		const kind = view.getUint16(at);
		const [model, part] = SPACES[kind] ?? [`space ${kind}`];
		const length = version === 2 ? view.getUint32(at + 10) : 0;
		all.push({name: version === 2 ? nameAt(bytes, at + 14, length) : undefined, model, n: i => part(view.getUint16(start + 2 * i), i)});
		if (version === 2) at += 4 + 2 * length;
	}
	return ofModels('Photoshop swatches (.aco)', all);
}
