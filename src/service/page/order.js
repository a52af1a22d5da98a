/* The order of the list: a color is moved with Alt and an arrow key, or dragged. That is shown at once, and sent when the color rests. */
const REST = 500; // milliseconds without another key
const HOLD = 400; // milliseconds until a touch takes the tile instead of scrolling
const SLACK = 6; // pixels that a pointer may stray in a click
const EDGE = 56; // pixels at which a dragged tile scrolls the page
let draft; // {entry, others, from, to, edit} of the color that is being moved
let drag; // {entry, x, y, isHeld} of the pointer that is down
let wasDragged = false; // the click that ends a drag opens nothing

/* Why nothing can be moved now. */
function hindrance() {
	if (at.order.value !== 'list') return 'To move colors, sort by list order.';
	if (at.query.value) return 'To move colors, clear the search.';
	return isTooLong() && 'The list is too long to be sent, so that no color can be moved.';
}

function begin(entry) {
	const from = indexIn(entries, entry.key);
	draft = {entry, others: spliced(entries, from, 1), from, to: from};
}

/* Shows the color at an index of the list. */
function shift(to) {
	draft.to = Math.max(0, Math.min(to, draft.others.length));
	pending.delete(draft.edit);
	draft.edit = moving(draft.entry, placeOf(draft.others, draft.to));
	pending.add(draft.edit);
	take(list);
	current = draft.to;
	focusOn(current);
}

/* Sends the move, or puts the color back: if it is where it was, or if `isUnwanted`. */
function settle(isUnwanted) {
	if (!draft) return;
	const {entry, from, to, edit} = draft;
	clearTimeout(settle.timer);
	draft = null;
	pending.delete(edit);
	if (to === from || isUnwanted) return take(list);
	attempt(() => make(edit, `Moved ${called(entry.name)} to place ${figure(to + 1)}.`));
}

/* Alt and an arrow key. */
function nudge(entry, by) {
	const why = hindrance();
	if (why) return tell(why);
	if (!draft || indexOf(entry.key) !== draft.to) {
		settle();
		begin(entry);
	}
	shift(draft.to + by);
	clearTimeout(settle.timer);
	settle.timer = setTimeout(settle, REST);
}

/* From here on the pointer carries the tile. */
function hold() {
	const why = hindrance();
	if (why) {
		drag = null;
		return tell(why);
	}
	settle();
	drag.isHeld = true;
	begin(drag.entry);
	shift(draft.from);
	carry();
}

/* Puts the tile where the pointer is, and scrolls at the edges, as long as it is held. */
function carry() {
	if (!drag?.isHeld) return;
	const {x, y} = drag;
	const edge = y > innerHeight - EDGE ? 1 : y < at.header.offsetHeight + EDGE ? -1 : 0;
	if (edge) scrollBy({top: edge * 10, behavior: 'instant'});
	const {left, top} = at.list.getBoundingClientRect();
	const column = Math.max(0, Math.min(columns - 1, Math.floor((x - left) / at.list.clientWidth * columns)));
	const to = Math.min(draft.others.length, Math.max(0, Math.floor((y - top) / row)) * columns + column);
	if (to !== draft.to) shift(to);
	requestAnimationFrame(carry);
}

function release(isUnwanted) {
	const isHeld = drag?.isHeld;
	clearTimeout(drag?.timer);
	drag = null;
	if (!isHeld) return;
	wasDragged = true;
	setTimeout(() => wasDragged = false);
	settle(isUnwanted);
}

at.list.onpointerdown = event => {
	const tile = event.target.closest('li');
	if (!tile || event.button || !event.isPrimary || !mayChange()) return;
	drag = {entry: tile.entry, x: event.clientX, y: event.clientY, isTouch: event.pointerType === 'touch'};
	if (drag.isTouch) drag.timer = setTimeout(hold, HOLD);
};
onpointermove = event => {
	if (!drag || !event.isPrimary) return;
	const {clientX: x, clientY: y} = event;
	if (!drag.isHeld) {
		if (Math.hypot(x - drag.x, y - drag.y) < SLACK) return;
		// a touch that moves at once scrolls
		drag.isTouch ? release() : hold();
	}
	if (drag) Object.assign(drag, {x, y});
};
onpointerup = () => release();
onpointercancel = () => release(true);
at.list.addEventListener('touchmove', event => drag?.isHeld && event.preventDefault(), {passive: false});
at.list.oncontextmenu = () => !drag?.isHeld;
