/* Reads the colors of a file by what is in it. Each recognizer gives {form, colors, skipped}, or null for what has another form; the first that knows the form is right.
   `skipped` has {name, why} of what is no color, and `rough`, if any, the names of colors that are only nearly right. */
export const read = bytes => first([ase, aco], bytes) ?? first([ownTable, json, xml, gpl, x11, style, script, yaml, table, list, lines], textOf(bytes));

function first(recognizers, content) {
	for (const recognize of recognizers) {
		try {
			const found = recognize(content);
			if (found) return found;
		} catch {} // it is cut, or too deep
	}
	return null;
}

/* The text of a file: in UTF-16 if it says so, or in UTF-8, or else in Latin-1 as Windows has it. Other binary files have a NUL somewhere, and no text. */
function textOf(bytes) {
	const utf16 = {'255,254': 'utf-16le', '254,255': 'utf-16be'}[bytes.slice(0, 2).join()];
	let text;
	try {
		text = new TextDecoder(utf16 ?? 'utf-8', {fatal: true}).decode(bytes);
	} catch {
		text = new TextDecoder('windows-1252').decode(bytes);
	}
	return text.includes('\0') ? '' : text;
}
