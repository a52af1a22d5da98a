
/* The list on the screen. Of more than ALL colors, only those in view have a tile, so that 10,000 cost no more than 1,000. */

const ALL = 1000; // tiles; the browser's own search and screen readers find all of them
const GAP = 5; // pixels between tiles
const SIDES = 20; // pixels of a tile beside its name
const WIDEST = 180; // pixels; a longer name may be cut
const SMALLEST = 12; // pixels; the size of names where many have to fit
const tiles = new Map();
const collator = new Intl.Collator(undefined, {numeric: true});
const orders = {
	name: (a, b) => collator.compare(a.name, b.name),
	hue: (a, b) => lookOf(a.value).hue - lookOf(b.value).hue,
	lightness: (a, b) => lookOf(a.value).darkness - lookOf(b.value).darkness,
};
let list = []; // as the service has it
const leaving = []; // names of colors that are being deleted: the first of each name is not shown
let entries = [], shown = [];
let longest = ''; // the name that is the widest
let columns = 1, width = 1, row = 1; // pixels, with the gap
let current = 0; // index in `shown` of the tile that Tab leads to

/* Takes over a new list. */
function take(colors) {
	list = colors;
	const counts = new Map();
	entries = leaving.reduce(without, list).map(({name, value}) => {
		const nth = (counts.get(name) ?? 0) + 1;
		counts.set(name, nth);
		return {name, value, nth, key: `${nth} ${name}`};
	});
	let most = -1;
	for (const entry of entries) entry.of = counts.get(entry.name);
	for (const {name} of entries.slice(0, ALL)) {
		const wide = widthOf(name, SMALLEST);
		if (wide > most && wide <= WIDEST) [most, longest] = [wide, name];
	}
	arrange();
}

/* The colors without the first of a name. */
function without(colors, name) {
	const first = colors.findIndex(color => color.name === name);
	return first < 0 ? colors : colors.toSpliced(first, 1);
}

/* Pixels of a name in a size. */
function widthOf(name, size) {
	canvas.font = `600 ${size}px system-ui, sans-serif`;
	return canvas.measureText(name.slice(0, 60)).width;
}

/* Finds out what is shown and in which order. The focus, and what is at the top of the screen, stay. */
function arrange() {
	const [focus, anchor] = [shown[current]?.key, scrollY && shown[Math.ceil(scrollY / row) * columns]?.key];
	const before = topOf(anchor);
	const query = at.query.value.trim().toLowerCase();
	shown = entries.filter(({name, value}) => name.toLowerCase().includes(query) || value.toLowerCase().includes(query));
	shown.sort(orders[at.order.value] ?? (() => 0));
	const place = indexOf(focus);
	current = Math.max(0, place < 0 ? Math.min(current, shown.length - 1) : place);

	const count = number => number.toLocaleString('en');
	say(at.count, `${query && `${count(shown.length)} of `}${count(entries.length)} ${entries.length === 1 ? 'color' : 'colors'}`);
	say(at.why, shown.length ? '' : query ? 'No color has this in its name or value.' : 'The list is empty.');
	say(at.way, query ? 'Clear search' : 'Add color');
	at.way.className = query ? '' : 'changes';
	at.keys.hidden = !shown.length;
	measure();
	const after = topOf(anchor);
	if (before >= 0 && after >= 0) scrollBy({top: after - before, behavior: 'instant'});
	draw();
}

function indexOf(key) {
	return shown.findIndex(entry => entry.key === key);
}

/* Pixels from the top of the list to a tile; negative when it is not shown. */
function topOf(key) {
	return Math.floor(indexOf(key) / columns) * row;
}

/* Chooses the size of tiles: the largest with which all fit on the screen, or else one good to read. Names fit into them, on one line if they can. */
function measure() {
	const whole = at.list.clientWidth + GAP;
	const header = at.header.offsetHeight;
	const least = widthOf(longest, SMALLEST) + SIDES + GAP;
	// a phone has two columns, and names on two lines
	const most = Math.max(1, Math.floor(whole / Math.max(105, least)), Math.min(2, Math.floor(whole / 130)));
	columns = Math.min(most, Math.max(1, Math.round(whole / 157)));
	row = Math.min(115, whole / columns * 0.62);
	// where names are wide, as in DejaVu Sans, two lines of a narrow tile have room for the longest and for a break at a bad place
	const narrow = Math.max(most, Math.floor(whole / Math.max(105, least * 0.6)));
	for (let more = Math.ceil(whole / 300); more <= narrow; more++) {
		const fitting = (innerHeight - header - 28) / Math.ceil(entries.length / more);
		if (fitting < (whole / more < least ? 61 : 46)) continue;
		columns = more;
		row = Math.min(fitting, whole / more * 0.72);
		break;
	}
	row = Math.floor(row);
	width = whole / columns;
	let size = 16;
	while (size > SMALLEST && widthOf(longest, size) > width - GAP - SIDES) size--;
	for (const [name, value] of Object.entries({width: `${width - GAP}px`, height: `${row - GAP}px`, size: `${size}px`, lines: row < 61 ? 1 : 2}))
		at.list.style.setProperty(`--${name}`, value);
	at.list.style.height = `${Math.ceil(shown.length / columns) * row}px`;
	document.documentElement.style.setProperty('--header', `${header + 9}px`);
}

/* Sees to tiles for what is in view or near, and for the current one, or for all. */
function draw() {
	const top = scrollY - at.list.offsetTop;
	const first = Math.floor((top - innerHeight / 2) / row) * columns;
	const last = Math.ceil((top + innerHeight * 1.5) / row) * columns;
	const wanted = new Map();
	shown.forEach((entry, index) => {
		if (entries.length <= ALL || index >= first && index < last || index === current) wanted.set(entry.key, index);
	});
	const focused = document.activeElement;
	for (const [key, tile] of tiles) {
		if (wanted.has(key)) continue;
		tiles.delete(key);
		tile.remove();
	}
	let next = at.list.firstChild;
	for (const [key, index] of wanted) {
		if (!tiles.has(key)) tiles.set(key, at.tile.content.firstChild.cloneNode(true));
		const tile = tiles.get(key);
		fill(tile, shown[index], index);
		if (tile === next) next = next.nextSibling;
		else at.list.insertBefore(tile, next);
	}
	// what is moved or removed loses the focus
	if (!focused.isConnected) focusOn(current);
	else if (focused !== document.activeElement) focused.focus({preventScroll: true});
}

function fill(tile, entry, index) {
	const [copy, edit] = tile.children;
	tile.style.translate = `${index % columns * width}px ${Math.floor(index / columns) * row}px`;
	tile.ariaSetSize = shown.length;
	tile.ariaPosInSet = index + 1;
	copy.tabIndex = edit.tabIndex = index === current ? 0 : -1;
	if (tile.entry?.value !== entry.value || tile.entry.of !== entry.of) {
		const [name, value, nth] = copy.children;
		paint(tile, entry.value);
		for (const [element, text] of [[name, entry.name], [value, entry.value]]) {
			element.textContent = text;
			element.dataset.blank = blankness(text);
		}
		nth.textContent = entry.of > 1 ? `${entry.nth} of ${entry.of}` : '';
		edit.ariaLabel = `Change ${called(entry.name)}`;
	}
	tile.entry = entry;
}

function focusOn(index) {
	if (!shown.length) return;
	current = Math.max(0, Math.min(index, shown.length - 1));
	draw();
	const tile = tiles.get(shown[current].key);
	tile.firstElementChild.focus({preventScroll: true});
	tile.scrollIntoView({block: 'nearest'});
}

/* A mark for a text that shows nothing. */
function blankness(text) {
	return text ? /^[\p{C}\p{Z}]*$/u.test(text) ? '(blank)' : '' : '(empty)';
}

/* A stranger's text in a sentence: isolated, as it may run from right to left, and short. */
function called(text) {
	return blankness(text) || `\u2068${text.length > 60 ? `${text.slice(0, 60)}…` : text}\u2069`;
}

/* Sets a text, which is read out if it is another. */
function say(element, text) {
	if (element.textContent !== text) element.textContent = text;
}
