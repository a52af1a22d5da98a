/* The list on the screen: one field of tiles. Of more than ALL colors, only those in view have a tile, so that 10,000 cost no more than 1,000; all have one for Ctrl+F and for paper. */
const ALL = 1000; // tiles; the browser's own search and screen readers find all of them
const BATCH = 150; // tiles out of view that are made in one step, so that a key waits for few of them
const PAUSE = 30; // milliseconds between two steps, for a key and a frame
const NARROWEST = 152; // pixels of a tile; the longest of CSS's names fits into it in the widest of the usual fonts
const LOW = matchMedia('(pointer: coarse)').matches ? 44 : 36; // pixels of a tile with two lines
const ROW = 64; // pixels of a tile where not all fit on the screen
const LARGE = 96; // pixels of a tile that has room for larger text
const HIT = {width: 360, height: 160}; // pixels of a tile at most, where one searches
const NEAREST = 12; // colors that are found for one that is typed, beside those that have its text
const HEADING = 40; // pixels above them
const SEED = '"3ff26a219ad757346f0ce34cc821b66b"'; // tag of the list that a service without options begins with
const tiles = new Map();
const collator = new Intl.Collator(undefined, {numeric: true});
const orders = {
	list: colors => colors,
	hue: colors => sortedBy(({value}) => lookOf(value).rank, colors),
	lightness: colors => sortedBy(({value}) => -lookOf(value).lightness, colors),
	name: colors => colors.sort((a, b) => collator.compare(a.name, b.name)),
};
let list = []; // as the service has it
const pending = new Set(); // edits that the service has yet to make; they are shown
let entries = [], shown = [];
let hits = 0; // how many of `shown` have what is searched for in their text; the rest is near it
let chosen; // order, if somebody has chosen one
let columns = 1, row = 1;
let current = 0; // index in `shown` of the tile that Tab leads to
let anchor, anchored = 0; // key of the tile that stays in its place, and how far the page is scrolled for that

/* What tells colors of one name apart: each is the nth of so many. */
function* numbered(colors) {
	const counts = new Map(), entries = [];
	for (const {name, value} of colors) {
		const nth = (counts.get(name) ?? 0) + 1;
		counts.set(name, nth);
		entries.push({name, value, nth, key: `${nth} ${name}`});
		yield;
	}
	for (const entry of entries) {
		entry.of = counts.get(entry.name);
		yield;
	}
	return entries;
}
const entriesOf = colors => atOnce(numbered(colors));

/* Does work that yields after each small part of it. */
function atOnce(steps) {
	for (;;) {
		const {done, value} = steps.next();
		if (done) return value;
	}
}

/* Takes over a new list, with the edits that are under way. */
function take(colors) {
	list = colors;
	let edited = list;
	for (const edit of pending) {
		try {
			edited = edit(edited).colors;
		} catch {
			// `apply` tells of it when it sends the edit
		}
	}
	entries = entriesOf(edited);
	arrange();
	followOpened();
	followIncoming();
}

/* Finds out what is shown and in which order. The focus stays. So does the place on the screen of the tile that has it, or else of the first tile in view. */
function arrange() {
	if (!listTag) return;
	const tile = document.activeElement.closest('#list li');
	if (tile) current = indexOf(tile.entry.key);
	const focus = shown[current]?.key;
	const isInView = tile && Math.abs(topOf(focus) - scrollY - innerHeight / 2) < innerHeight / 2;
	if (isInView) anchor = focus;
	else if (scrollY !== anchored || indexOf(anchor) < 0) anchor = shown[Math.ceil(scrollY / row) * columns]?.key;
	const [before, above] = [topOf(anchor), at.list.offsetTop];
	at.order.value = chosen ?? 'list';
	const query = at.query.value.trim();
	const [having, near] = found(query);
	hits = having.length;
	shown = [...having, ...near];
	const place = indexOf(focus);
	current = Math.max(0, place < 0 ? Math.min(current, shown.length - 1) : place);

	say(at.count, (query && `${figure(hits)} of `) + amount(entries.length));
	say(at.why, shown.length ? '' : query ? 'No color has this in its name or value.' : 'The list is empty.');
	say(at.way, query ? 'Clear search' : 'Add color');
	at.way.className = query ? '' : 'changes';
	at.none.hidden = !!shown.length;
	at.first.hidden = listTag !== SEED;
	measure(query);
	at.nearing.hidden = !near.length;
	say(at.nearing, `Near ${query}`);
	at.nearing.style.translate = `0 ${Math.ceil(hits / columns) * row}px`;
	const after = topOf(anchor);
	if (scrollY && !drag?.isHeld && before >= 0 && after >= 0) scrollBy({top: after - before + at.list.offsetTop - above, behavior: 'instant'});
	anchored = scrollY;
	draw();
}

/* Finds what has each word of a query in its name or value, whatever case and blanks, a name that is the query first; and if it is a color, what is the same in 8 bits, however written, and what is nearest to it. */
function found(query) {
	const plain = text => text.toLowerCase().replace(/\s+/g, '');
	const sort = orders[at.order.value];
	if (!query) return [sort([...entries]), []];
	const look = [query, `rgb(${query})`, `rgb${query}`, /\d/.test(query) ? `#${query}` : ''].map(lookOf).find(({css}) => css);
	const words = (look ? [query] : query.split(/\s+/)).map(plain);
	const textOf = entry => entry.text ??= `${plain(entry.name)}\n${plain(entry.value)}`;
	const same = look && in8Bits(look);
	const isEqual = ({value}) => look && in8Bits(lookOf(value)) === same;
	const isHit = entry => isEqual(entry) || words.every(word => textOf(entry).includes(word));
	const having = sort(entries.filter(isHit));
	const exact = having.filter(entry => textOf(entry).startsWith(`${plain(query)}\n`));
	const sorted = new Set([...exact, ...having.filter(isEqual), ...having]);
	const near = look ? nearest(look, entries.filter(entry => !sorted.has(entry))).slice(0, NEAREST) : [];
	return [[...sorted], near];
}

/* Sorts colors by how far they are from a look in OKLab (CSS Color 4 §9), and then in alpha. A browser rounds by less than 1e-5, and one step of 8 bits is more than 7e-5. */
function nearest(look, colors) {
	const distance = ({lightness, a, b, alpha}) => Math.round(1e5 * Math.hypot(lightness - look.lightness, a - look.a, b - look.b)) + Math.abs(alpha - look.alpha) / 2;
	return sortedBy(({value}) => distance(lookOf(value)), colors.filter(({value}) => lookOf(value).css));
}

/* Finds the number of each color once, and not with each comparison. */
const sortedBy = (number, colors) => colors.map(color => [number(color), color]).sort(([a], [b]) => a - b).map(([, color]) => color);

const indexOf = wanted => shown.findIndex(({key}) => key === wanted);

/* The column of a tile, and pixels from the top of the list to it. What is near begins a row of its own. */
function spotOf(index) {
	const isNear = index >= hits;
	const nth = isNear ? index - hits : index;
	const above = isNear ? Math.ceil(hits / columns) * row + HEADING : 0;
	return [nth % columns, above + Math.floor(nth / columns) * row];
}

/* Pixels from the top of the list to a tile; negative when it is not shown. */
const topOf = key => indexOf(key) < 0 ? -1 : spotOf(indexOf(key))[1];

/* Chooses the size of tiles. Where all fit on the screen they fill it, somewhat wider than high and with few gaps in the last row; but not where one searches. */
function measure(query) {
	const whole = at.list.clientWidth;
	const near = shown.length - hits;
	const high = innerHeight - at.list.offsetTop - (near && HEADING);
	const most = Math.max(1, Math.floor(whole / NARROWEST), Math.min(2, Math.floor(whole / 130)));
	let least = Infinity;
	const length = Math.max(1, shown.length);
	const fewest = query ? Math.ceil(whole / HIT.width) : Math.min(length, Math.ceil(whole / 720));
	for (let count = fewest; count <= most; count++) {
		const rows = Math.max(1, Math.ceil(hits / count) + Math.ceil(near / count));
		const height = Math.min(Math.floor(high / rows), query ? HIT.height : Infinity);
		const cost = Math.abs(Math.log(whole / count / height / 1.6)) + 4 * (1 - length / rows / count);
		if (height >= LOW && cost < least) [columns, row, least] = [count, height, cost];
	}
	if (least === Infinity) [columns, row] = [Math.max(Math.min(2, most), Math.floor(whole / 168)), ROW];
	at.list.className = row >= LARGE && whole / columns > 1.4 * NARROWEST ? 'large' : '';
	at.list.style.height = `${shown.length && spotOf(shown.length - 1)[1] + row}px`;
}

/* Makes, places and removes tiles. Those in view or near it and the current one come at once. All others follow in steps of BATCH, unless only `isPart` of the list is drawn: browsers style each tile anew for a dialog. */
function draw(most = 0, isPart = entries.length > ALL || at.opened.open) {
	const top = scrollY - at.list.offsetTop;
	const [first, last] = [-0.25, 1.25].map(screens => Math.ceil((top + innerHeight * screens) / row) * columns);
	// whole pixels, so that no line shows between tiles
	const lefts = Array.from({length: columns + 1}, (_, column) => Math.round(column * at.list.clientWidth / columns));
	const isNear = index => index >= first && index < last || index === current;
	const wanted = new Map();
	shown.forEach(({key}, index) => {
		if (!isPart || isNear(index)) wanted.set(key, index);
	});
	let isWhole = true;
	const focused = document.activeElement;
	for (const [key, tile] of tiles) {
		if (wanted.has(key)) continue;
		tiles.delete(key);
		tile.remove();
	}
	let next = at.list.firstChild;
	for (const [key, index] of wanted) {
		if ((!next || tiles.get(key) !== next) && !isNear(index) && most-- <= 0) {
			tiles.get(key)?.remove();
			tiles.delete(key);
			isWhole = false;
			continue;
		}
		if (!tiles.has(key)) tiles.set(key, at.tile.content.firstChild.cloneNode(true));
		const tile = tiles.get(key);
		const {style} = tile.firstChild;
		// what comes into view later is drawn then
		style.contentVisibility = index >= first && index < last ? '' : 'auto';
		fill(tile, shown[index], index, lefts);
		if (tile === next) {
			next = next.nextSibling;
			continue;
		}
		at.list.insertBefore(tile, next);
	}
	clearTimeout(draw.timer);
	if (!isWhole) draw.timer = setTimeout(draw, PAUSE, BATCH);
	// what is moved or removed loses the focus
	if (!focused.isConnected) focusTile();
	else if (focused !== document.activeElement) focused.focus({preventScroll: true});
}

function fill(tile, entry, index, lefts) {
	const open = tile.firstChild;
	const [column, top] = spotOf(index);
	const [translate, width, height] = [`${lefts[column]}px ${top}px`, `${lefts[column + 1] - lefts[column]}px`, `${row}px`];
	const place = [translate, width, height].join();
	if (tile.place !== place) {
		Object.assign(tile.style, {translate, width, height});
		tile.place = place;
	}
	tile.classList.toggle('carried', !!drag?.isHeld && index === current);
	tile.ariaSetSize = shown.length;
	tile.ariaPosInSet = index + 1;
	open.tabIndex = index === current ? 0 : -1;
	open.ariaKeyShortcuts = mayChange() ? 'C F2 Delete' : 'C';
	if (tile.look !== lookOf(entry.value) || tile.entry.of !== entry.of) {
		const [name, nth, value] = open.children;
		tile.look = paint(tile, entry.value);
		for (const [element, text] of [[name, entry.name], [value, entry.value]]) {
			element.textContent = text;
			element.dataset.blank = blankness(text);
		}
		nth.textContent = entry.of > 1 ? `${entry.nth} of ${entry.of}` : '';
		// its texts are not read out while they are not drawn
		open.ariaLabel = [blankness(entry.name) || entry.name, nth.textContent, blankness(entry.value) || entry.value].filter(Boolean).join(' ');
	}
	tile.entry = entry;
}

/* Puts the focus on the current tile, in view or not, or on the search where there is no tile. */
const focusTile = () => (tiles.get(shown[current]?.key)?.firstChild ?? at.query).focus({preventScroll: true});

/* Pixels that what is told takes at the bottom of the screen. */
const room = () => at.notices.offsetHeight && Math.ceil(innerHeight - at.notices.getBoundingClientRect().top) + 8;

function focusOn(index) {
	current = Math.max(0, Math.min(index, shown.length - 1));
	draw();
	focusTile();
	reveal();
}

/* Puts the focus on a color that has come, also where a search hid it. */
function reach({key}) {
	if (indexOf(key) < 0) search('');
	focusOn(indexOf(key));
}

/* Scrolls the current tile out from behind the header and what is told. */
function reveal() {
	const top = at.list.offsetTop + spotOf(current)[1];
	const [least, most] = [top + row + room() - innerHeight, top - at.header.offsetHeight];
	scrollTo({top: Math.min(most, Math.max(least, scrollY)), behavior: 'instant'});
}

/* A mark for a text that shows nothing. */
const blankness = text => text ? /^[\p{C}\p{Z}]*$/u.test(text) ? '(blank)' : '' : '(empty)';

/* A name or value within a sentence: isolated, as it may run from right to left, and not too long. */
const called = text => blankness(text) || `\u2068${text.slice(0, 60)}${text.length > 60 ? '…' : ''}\u2069`;

const figure = number => number.toLocaleString('en');
const amount = number => `${figure(number)} ${number === 1 ? 'color' : 'colors'}`;
const element = (tag, text = '') => Object.assign(document.createElement(tag), {textContent: text});

/* Has screen readers read out a text, also one that they have read before; after a rest, unless another one comes. */
function speak(text, rest = 0) {
	clearTimeout(speak.timer);
	speak.timer = setTimeout(() => at.said.textContent = text, rest);
}

/* Sets a text if it is another one: screen readers read out each text that is set. */
function say(element, text) {
	if (element.textContent !== text) element.textContent = text;
}
