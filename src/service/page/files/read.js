/* Reads the colors of a file by what is in it. Each recognizer gives {form, colors, skipped}, or null for what has another form; the first that knows the form is right. */
/* `skipped` has {name, why} of what is no color, and `rough`, if any, the names of colors that are only nearly right. */
/* All of it goes on in small steps: who calls it decides how many are made at a time, and whether it goes on. */
export const read = function* (bytes) {
	return (yield* first([ase, aco, act, riff], bytes)) ?? (yield* first([ownTable, json, xml, gpl, ramp, tex, x11, style, script, yaml, table, list, lines], yield* textOf(bytes)));
};

/* What the first recognizer finds that is sure of a color, or else what the first one skips. */
function* first(recognizers, content) {
	let doubtful = null;
	for (const recognize of recognizers) {
		try {
			const found = yield* recognize(content);
			if (found?.colors.length || found && /^own/.test(recognize.name)) return found;
			doubtful ??= found;
		} catch {} // it is cut
	}
	return doubtful;
}

/* The text of a file: in UTF-16 if it says so, or in UTF-8, or else in Latin-1 as Windows has it. Other binary files have a NUL somewhere, and no text. */
function* textOf(bytes) {
	const utf16 = {'255,254': 'utf-16le', '254,255': 'utf-16be'}[bytes.slice(0, 2).join()];
	for (const label of [utf16 ?? 'utf-8', 'windows-1252']) {
		try {
			return yield* decoded(bytes, label);
		} catch {} // it is in the other one
	}
	return '';
}

const PIECE = 2 ** 18; // bytes that are decoded in one step

function* decoded(bytes, label) {
	const decoder = new TextDecoder(label, {fatal: true});
	let text = '';
	for (let at = 0; at < bytes.length; at += PIECE) {
		const part = decoder.decode(bytes.subarray(at, at + PIECE), {stream: true});
		if (part.includes('\0')) return '';
		text += part;
		yield;
	}
	return text + decoder.decode();
}
