/* Writes files that `read` reads again. A color has its line, or why the form cannot have it, or how it has it otherwise. */
const writers = {
	css: (colors, lookOf) => [':root {', ...properties(colors, lookOf, '--'), '}'],
	tailwind: (colors, lookOf) => ['@theme {', ...properties(colors, lookOf, '--color-'), '}'],
	csv: colors => ['name,value', ...colors.map(({name, value}) => ({name, line: `${quoted(name)},${quoted(value)}`}))],
	gpl: (colors, lookOf) => ['GIMP Palette', 'Name: Colors', '#', ...colors.map(({name, value}) => {
		const {css, rgb = [], alpha} = lookOf(value);
		const bytes = rgb.map(part => Math.round(255 * Math.max(0, Math.min(part, 1))));
		const why = !name ? NO_NAME : !css ? NO_COLOR : name !== name.trim() || /[\r\n]/.test(name) ? 'its name has line breaks, or blanks at its ends' : '';
		const change = hexOf(bytes) !== value && `written as hex digits${alpha < 1 ? ', without alpha' : ''}`;
		return {name, why, change, line: `${bytes.join(' ')}\t${name}`};
	})],
};
const NO_NAME = 'it has no name';
const NO_COLOR = 'its value is no CSS color';

/* The text of a file, and {name, why} of what it does not have, or has otherwise. `lookOf` tells what a value looks like. */
export function write(form, colors, lookOf) {
	const lost = [], lines = [];
	for (const part of writers[form](colors, lookOf)) {
		const {name, line = part, note, why, change} = part;
		const reason = why || line.includes('\0') && 'it has a NUL';
		if (reason || change) lost.push({name, why: reason ? `left out, since ${reason}` : change});
		if (!reason || note) lines.push(reason ? note : line);
	}
	return {text: [...lines, ''].join('\n'), lost};
}

/* Custom properties, of which one name has one value. */
function properties(colors, lookOf, prefix) {
	const taken = new Set();
	return colors.map(({name, value}) => {
		const property = CSS.escape(prefix + name);
		const why = !name ? NO_NAME : taken.has(name) ? 'an earlier color has this name' : !lookOf(value).css ? NO_COLOR : /^\s|\s$|[\r\n\f]|\/\*/.test(value) ? 'its value has line breaks, comments, or blanks at its ends' : name.includes('\0') ? 'it has a NUL' : '';
		taken.add(name);
		return {name, why, line: `  ${property}: ${value};`, note: `  /* ${property} is left out: ${why} */`};
	});
}

const quoted = text => /[",\r\n]/.test(text) || text !== text.trim() || !text ? `"${text.replaceAll('"', '""')}"` : text;
