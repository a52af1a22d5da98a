/* Style sheets, and colors in XML. */

/* Custom properties of CSS, variables of SCSS and Less. */
function style(text) {
	const plain = text.replace(/\/\*[^]*?(?:\*\/|$)|(?<=^|[\s;])\/\/[^\n]*/g, ' ');
	const isTheme = /@theme\b[^{;]*\{/.test(plain);
	const values = new Map(), skipped = [];
	let form = '';
	const take = (name, color) => {
		const other = values.get(name);
		if (!color || other && other !== color) skipped.push({name: bare(name), why: color ? `is ${other} already` : 'no color'});
		else values.set(name, color);
	};
	// without braces, as in Sass, a line ends a value
	for (const [, written, text] of plain.matchAll(/(?<![\w-])((?:--|[$@])(?:[^ \t\n\r\f\\:;,(){}'"]|\\[\da-f]{1,6}[ \t\n\r\f]?|\\[^])+)\s*:\s*(\([^;{}]*|[^;{}\n]*)/gi)) {
		const variable = unescaped(written);
		const value = text.replace(/\s*!(default|global|important)\s*$/, '').trim();
		const color = values.get(value) ?? values.get(unescaped(/^var\(\s*(--[^\s,()]+)\s*\)$/.exec(value)?.[1] ?? '')) ?? colorOf(value);
		const name = isTheme ? variable.replace(/^--color-/, '--') : variable;
		form ||= isTheme ? 'Tailwind theme' : {'-': 'CSS custom properties', $: 'SCSS variables', '@': 'Less variables'}[variable[0]];
		// a map of SCSS
		const inner = /^\(/.test(value) ? [...value.matchAll(/(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*:\s*(["']?)([^,()"']+(?:\([^()]*\))?)\4/g)] : [];
		for (const [, double, single = double, key = single, , text] of inner) take(`${name}-${key}`, values.get(text.trim()) ?? colorOf(text));
		if (!inner.length) take(name, color);
	}
	const colors = [...values].map(([name, value]) => ({name: bare(name), value}));
	return colors.length ? {form, colors, skipped} : null;
}

const bare = variable => variable.replace(/^--|^[$@]/, '');

/* A name without the escapes of CSS (CSS Syntax 3 §4.3.7). */
const unescaped = name => name.replace(/\\(?:([\da-f]{1,6})[ \t\n\r\f]?|([^]))/gi, (_, hex, character) => hex ? String.fromCodePoint(parseInt(hex, 16)) : character);

/* Android's, and what else has <color name="…">. */
function xml(text) {
	const colors = [], skipped = [];
	for (const [, name, written] of text.replace(/<!--[^]*?(?:-->|$)/g, '').matchAll(/<color\s+name\s*=\s*["']([^"']*)["'][^<>]*>([^<]*)/g)) {
		const value = colorOf(ofArgb(written.trim()));
		if (value) colors.push({name, value});
		else skipped.push({name, why: `${written.trim()} is no color`});
	}
	return colors.length ? {form: 'Android colors', colors, skipped} : null;
}
