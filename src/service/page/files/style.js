/* Style sheets. */
const VARIABLE = /(--|[$@])(?:[^ \t\n\r\f\\:;,(){}'"]|\\(?:[\da-f]{1,6} |[^])){1,255}/iy;

/* Custom properties of CSS, variables of SCSS and Less, and colors of GTK. */
function* style(text) {
	const written = []; // {name, key, text} of each variable
	const uses = new Map(); // functions of CSS that custom properties are put into
	const other = /[^-$@/"'\\]{1,9999}/y;
	let isTheme = false, form = '', failures = 0;
	for (let at = 0; at < text.length; yield) {
		other.lastIndex = at;
		if (other.test(text)) at = other.lastIndex;
		if (at >= text.length) break;
		const part = text[at];
		if (part === '/' && text[at + 1] === '*') {
			at = (text.indexOf('*/', at + 2) + 1 || text.length) + 1;
			continue;
		}
		if (part === '/' && text[at + 1] === '/' && /^$|[\s;{}]/.test(text.slice(at - 1, at))) {
			at = lineAt(text, at).next;
			continue;
		}
		VARIABLE.lastIndex = at;
		const [name] = (/[\w-]/.test(text[at - 1] ?? '') ? null : VARIABLE.exec(text)) ?? [];
		if (!name) {
			at++;
			continue;
		}
		const use = /\b(hsl|rgb)a?\(\s*var\(\s*$/.exec(text.slice(Math.max(0, at - 40), at));
		if (use) uses.set(unescaped(name), use[1]);
		isTheme ||= name === '@theme';
		at += name.length;
		const {value, end, isOpen} = yield* valueOf(text, at, name, failures < FAILURES);
		if (isOpen) failures++;
		if (end) at = end;
		if (value === undefined) continue;
		written.push(...value);
		form ||= isTheme ? 'Tailwind theme' : {'-': 'CSS custom properties', $: 'SCSS variables', '@': name === '@define-color' ? 'Colors of GTK' : 'Less variables'}[name[0]];
	}
	return yield* ofVariables(written, form, uses, isTheme);
}

/* What a variable at `at` is set to: a list of {name, text}, several for a map of SCSS; and where that ends. */
function* valueOf(text, at, name, isTried) {
	// without braces, as in Sass, a line ends a value
	const simple = name === '@define-color' ? /\s+([\w-]+)\s+([^;{}\n]{0,999})/y : /\s{0,99}:()\s{0,99}([^;{}\n]{0,999})/y;
	simple.lastIndex = at;
	const [all, defined, rest] = simple.exec(text) ?? [];
	if (all === undefined) return {};
	const end = simple.lastIndex;
	if (rest[0] === '(') {
		const map = isTried && (yield* valueAt(text, end - rest.length, true));
		const pairs = [];
		const flatten = (node, path) => {
			for (const [key, child] of node.entries?.() ?? []) typeof child === 'object' && child ? flatten(child, `${path}-${bared(`${key}`)}`) : pairs.push({name: `${path}-${bared(`${key}`)}`, text: child ?? ''});
		};
		if (map) flatten(map.data, name);
		return map ? {value: pairs, end: map.end} : {isOpen: true};
	}
	const value = rest.replace(/\/\*.*?(\*\/|$)|\s\/\/.*/g, ' ').replace(/\s*!(default|global|important)\s*$/, '').trim();
	return {value: [{name: defined ? `@${defined}` : name, text: value}], end};
}

/* Without quotes, but where these make a name of a color a mere text. */
const bared = text => text.replace(/^(["'])(.*)\1$/, '$2');
const ofQuoted = text => /^["']/.test(text) ? /^.[#\w]+.$|\(/.test(text) && !/^.[a-z]+.$/i.test(text) ? bared(text) : '' : text;

function* ofVariables(written, form, uses, isTheme) {
	const own = ({name}) => unescaped(isTheme ? name.replace(/^--color-/, '--') : name);
	const values = new Map(), skipped = [], found = [];
	for (const one of written) {
		const name = unescaped(one.name);
		const other = values.get(name);
		if (other === undefined) values.set(name, one.text);
		else one.other = other;
		yield;
	}
	const follow = (text, depth = 0) => {
		const way = values.get(text) ?? values.get(unescaped(/^var\(\s*(--[^\s,()]+)\s*[,)]/.exec(text)?.[1] ?? ''));
		return way === undefined || depth > 9 ? text : follow(way, depth + 1);
	};
	for (const one of written) {
		yield;
		if (one.other !== undefined) {
			if (one.other !== one.text) skipped.push({name: bare(own(one)), why: `is ${one.other} already`});
			continue;
		}
		const text = ofQuoted(follow(one.text));
		const color = ofText(text, one.name[0] === '-' ? spaceIn(one.name) ?? uses.get(unescaped(one.name)) ?? 'bare' : spaceIn(one.name));
		const name = bare(own(one));
		if (color) found.push({name, color});
		else skipped.push({name, why: 'no color'});
	}
	return yield* judge(form, found, skipped, new Set(uses.values()));
}

const bare = variable => variable.replace(/^--|^[$@]/, '');

/* A name without the escapes of CSS (CSS Syntax 3 §4.3.7). */
const unescaped = name => name.replace(/\\(?:([\da-f]{1,6})[ \t\n\r\f]?|([^]))/gi, (_, hex, character) => hex ? String.fromCodePoint(parseInt(hex, 16)) : character);

/* \definecolor of LaTeX's xcolor. */
function* tex(text) {
	const found = [], skipped = [];
	for (let at = text.indexOf('\\definecolor'); at >= 0; at = text.indexOf('\\definecolor', at + 1)) {
		yield;
		const [, name, model, written] = /^\\definecolor(?:\[\w+\])?\{([^{}]{1,99})\}\s*\{(\w{1,20})\}\s*\{([^{}]{1,99})\}/.exec(text.slice(at, at + 300)) ?? [];
		const space = {html: 'HTML', rgb: 'rgb', gray: 'gray', cmyk: 'cmyk', hsb: 'hsv'}[model?.toLowerCase()];
		const parts = written?.split(',').map(part => part.trim()) ?? [];
		const color = space === 'HTML' ? ofText(`#${written}`) : space === 'gray' ? grayOf(+written) : space && ofParts(space, parts, {range: model === 'RGB' ? 255 : 1});
		if (color) found.push({name, color});
		else if (name) skipped.push({name, why: `a color in ${model}`});
	}
	return yield* judge('Colors of LaTeX', found, skipped);
}

const grayOf = n => n >= 0 && n <= 1 ? {css: MODELS.gray([n])} : undefined;
