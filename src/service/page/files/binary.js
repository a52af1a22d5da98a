/* Swatches of Adobe's programs: numbers with the highest byte first, names in UTF-16. And palettes of bytes. */
const nameAt = (bytes, at, length) => new TextDecoder('utf-16be', {ignoreBOM: true}).decode(bytes.subarray(at, at + 2 * length)).replace(/\0$/, '');
const viewOf = bytes => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
const textAt = (bytes, at) => String.fromCharCode(...bytes.subarray(at, at + 4));

/* Adobe's spaces by their names in .ase and their numbers in .aco: the model, how many channels, and what a channel is of 0 to 1. */
const SPACES = {
	RGB: ['rgb', 3], Gray: ['gray', 1], CMYK: ['cmyk', 4], LAB: ['lab', 3, (n, i) => i ? n : 100 * n],
	0: ['rgb', 3, n => n / 65535], 2: ['cmyk', 4, n => 1 - n / 65535], 7: ['lab', 3, (n, i) => i ? (n << 16 >> 16) / 100 : n / 100], 8: ['gray', 1, n => n / 10000], 9: ['cmyk', 4, n => n / 10000],
};

/* A color of a model, of which `n` tells the channels. */
function ofModel(space, n) {
	const [model, count, part = n => n] = SPACES[space] ?? [];
	const css = model && MODELS[model](Array.from({length: count}, (_, i) => part(n(i), i)));
	return css ? {css, space: model} : {css: '', why: isNaN(space) ? `a color in ${space}` : `a color in space ${space}`};
}

/* Adobe Swatch Exchange: blocks, of which some are colors. */
function* ase(bytes) {
	const view = viewOf(bytes);
	if (bytes.length < 12 || textAt(bytes, 0) !== 'ASEF') return null;
	const found = [];
	for (let at = 12, next; at + 6 <= bytes.length; at = next) {
		yield;
		next = at + 6 + view.getUint32(at + 2);
		// others begin and end groups
		if (view.getUint16(at) !== 1) continue;
		const length = view.getUint16(at + 6);
		// or else the names of many blocks would be the same long one
		if (at + 12 + 2 * length > next) return null;
		const model = at + 8 + 2 * length;
		found.push({name: nameAt(bytes, at + 8, length), color: ofModel(textAt(bytes, model).trim(), i => view.getFloat32(model + 4 + 4 * i))});
	}
	return yield* judge('Adobe swatches (.ase)', found);
}

/* Photoshop's swatches: colors without names, and mostly the same again with names. */
function* aco(bytes) {
	const view = viewOf(bytes);
	const [version, count] = bytes.length < 4 ? [] : [view.getUint16(0), view.getUint16(2)];
	const end = 4 + 10 * count;
	if (!count || version > 2 || !version || bytes.length < end) return null;
	if (version === 1 && bytes.length > end + 4 && view.getUint16(end) === 2) return yield* aco(bytes.subarray(end));
	const found = [];
	for (let at = 4; found.length < count; at += 10) {
		yield;
		const start = at + 2;
		const length = version === 2 ? view.getUint32(at + 10) : 0;
		found.push({name: version === 2 ? nameAt(bytes, at + 14, length) : undefined, color: ofModel(view.getUint16(at), i => view.getUint16(start + 2 * i))});
		if (version === 2) at += 4 + 2 * length;
	}
	return yield* judge('Photoshop swatches (.aco)', found);
}

/* Adobe's color table of indexed pictures: 256 colors of three bytes, and maybe how many of them are in use. */
function* act(bytes) {
	if (bytes.length !== 768 && bytes.length !== 772) return null;
	// a text may be as long
	if (bytes.length === 768 && bytes.every(byte => byte >= 9 && byte < 127)) return null;
	const used = bytes.length === 772 ? viewOf(bytes).getUint16(768) : 256;
	return yield* ofBytes('Color table (.act)', bytes, 0, used > 0 && used <= 256 ? used : 256, 3);
}

/* Microsoft's palettes. */
function* riff(bytes) {
	if (bytes.length < 24 || textAt(bytes, 0) !== 'RIFF' || textAt(bytes, 8) !== 'PAL ' || textAt(bytes, 12) !== 'data') return null;
	return yield* ofBytes('Microsoft palette (.pal)', bytes, 24, viewOf(bytes).getUint16(22, true), 4);
}

function* ofBytes(form, bytes, begin, count, size) {
	const found = [];
	for (let at = begin; found.length < count && at + 3 <= bytes.length; at += size) {
		found.push({color: {css: hexOf([...bytes.subarray(at, at + 3)])}});
		yield;
	}
	return yield* judge(form, found);
}
