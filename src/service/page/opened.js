/* A color opened: large, in the forms in which it can be copied; and the fields in which it is changed or added. */
let opened; // {entry, isNew, isChanging, isBusy, name, value} of the open dialog

const entryWith = wanted => entries.find(({key}) => key === wanted);

/* Shows a color, or what it was if it has gone. */
function open(entry) {
	opened = {entry};
	say(at.refusal, '');
	// closing it puts the focus on its tile
	if (entryWith(entry.key)) current = Math.max(0, indexOf(entry.key));
	showOpened();
	// what has just been pressed may be hidden now
	if (!isSeen(document.activeElement)) at.next.focus();
	if (at.opened.open) speak([called(entry.name), called(entry.value), at.place.textContent].filter(Boolean).join(', '));
	else at.opened.showModal();
	at.panel.scrollTop = 0;
	writeAddress();
}

/* Shows the fields for a new color, or for the open one, with the focus in one of them. */
function edit(entry, field = entry ? at.value : at.name) {
	at.name.value = entry?.name ?? '';
	at.value.value = entry?.value ?? '';
	// a field loses line breaks, but what nobody touched stays as it was
	opened = {entry, isNew: !entry, isChanging: true, name: at.name.value, value: at.value.value};
	say(at.refusal, '');
	at.name.required = !entry;
	at.value.required = entry?.value !== '';
	showOpened();
	if (!at.opened.open) at.opened.showModal();
	writeAddress();
	field.focus();
	field.select();
}

function showOpened() {
	const {entry, isNew, isChanging} = opened;
	const now = entryWith(entry?.key);
	draw(0, true);
	at.delete.hidden = at.rename.hidden = at.change.hidden = !now;
	at.again.hidden = !!now;
	at.opened.className = isChanging ? isNew ? 'changing new' : 'changing' : '';
	const index = isNew ? -1 : indexOf(entry.key);
	say(at.place, index < 0 ? '' : `${figure(index + 1)} of ${figure(shown.length)}`);
	const name = isChanging ? at.name.value : entry.name;
	const value = isChanging ? at.value.value : entry.value;
	say(at.title, isNew && !name ? 'Add a color' : blankness(name) || name);
	const look = paint(at.swatch, value);
	const isTaken = name !== (entry?.name ?? '') && entries.some(other => other.name === name);
	const isOther = now && now.value !== entry.value;
	say(at.save, opened.isBusy ? 'Saving…' : isOther ? `Overwrite ${called(now.value)}` : now ? 'Save' : isNew ? isTaken ? 'Add one more' : 'Add' : 'Add again');
	say(at.note, [
		isOther ? `Changed elsewhere: it is ${called(now.value)} now.` : !isNew && !now && 'Deleted elsewhere.',
		isTaken && 'There is one of this name already. Programs that ask by name get the first.',
		!isTaken && entry?.of > 1 && `Number ${entry.nth} of ${entry.of} with this name. Programs that ask by name get the first.`,
		value && !look.css && (value.length > LONGEST ? `Over ${LONGEST} characters are not tried as a color.` : 'Not a CSS color.'),
		value && !look.css && 'It is kept as text.',
	].filter(Boolean).join(' '));
	at.picker.className = look.css ? '' : 'ground';
	at.picker.value = hexOf(look.rgb ?? [0, 0, 0]);
	showForms(value, look);
}

/* Has an element have so many buttons with these parts. They stay when others come, as do the focus and what is selected. */
function buttonsOf(parent, count, parts) {
	while (parent.childElementCount > count) parent.lastChild.remove();
	while (parent.childElementCount < count) {
		const button = element('button');
		button.append(...parts.map(tag => element(tag)));
		parent.append(button);
	}
	return [...parent.children];
}

/* The value as it is stored, and the forms that it does not have. */
function showForms(value, look) {
	at.formats.hidden = !value;
	// only bytes of red, green and blue are the form in bytes
	const isIn = form => new RegExp(`^${form}a?\\(${form === 'rgb' ? '\\s*(\\d+[\\s,]+){2}\\d+\\s*[,/)]' : '(?!from)'}`, 'i').test(value);
	const others = Object.entries(look.css ? formsOf(look) : {}).filter(([form, text]) => text && text !== value.toLowerCase() && !isIn(form));
	const forms = [['value', value], ...others];
	buttonsOf(at.formats, forms.length, ['span', 'code', 'kbd', 'small']).forEach((button, i) => {
		const [form, text] = forms[i];
		const [label, code, key, hint] = button.children;
		button.ariaKeyShortcuts = i + 1;
		key.ariaHidden = true;
		say(label, form);
		say(code, text);
		say(key, `${i + 1}`);
		say(hint, i > 0 && form !== 'oklch' && isClipped(look) ? 'nearest in sRGB' : '');
		button.onclick = () => attempt(() => copy(text, button), opened);
	});
	at.contrast.hidden = look.alpha !== 1;
	if (at.contrast.hidden) return;
	// contrast ratios (WCAG 2.2)
	const ratios = {white: 1.05 / (look.luminance + 0.05), black: (look.luminance + 0.05) / 0.05};
	Object.entries(ratios).forEach(([ink, ratio], i) => {
		const [sample, text] = at.contrast.children[i].children;
		sample.style.background = look.css;
		// rounded down: 4.499 is not enough where 4.5 is needed
		say(text, `${(Math.floor(ratio * 100) / 100).toFixed(2)} : 1 with ${ink}`);
	});
}

/* Follows a list that has changed. Fields that somebody fills in stay as they are. */
function followOpened() {
	if (!opened) return followAddress();
	if (!at.opened.open || opened.isBusy) return;
	if (!opened.isChanging) opened.entry = entryWith(opened.entry.key) ?? opened.entry;
	showOpened();
}

/* Opens the color that the address names, or closes the one that it does not name any more. */
function followAddress() {
	const view = addressed();
	const name = view.get('color');
	if (at.opened.open && !mayLeave()) return writeAddress();
	if (name === null) return at.opened.close();
	const entry = entryWith(`${view.get('nth') ?? 1} ${name}`);
	if (entry) return open(entry);
	tell(`There is no color ${called(name)}.`);
	writeAddress();
}

/* Opens the color some steps away; after the last one comes the first. */
function step(by) {
	// a color that has gone, or that the search hides, lies before the current one
	const next = by > 0 && indexOf(opened.entry.key) < 0 ? current + by - 1 : current + by;
	if (shown.length && !opened.isChanging) open(shown[Math.abs(by) > 1 ? Math.max(0, Math.min(next, shown.length - 1)) : (next + shown.length) % shown.length]);
}

/* Whether the fields may be left: nothing is being saved, and nothing typed would be lost, or the person agrees. */
const mayLeave = () => !opened.isBusy && (!isTyped() || confirm('Discard what you typed?'));
const isTyped = () => at.opened.open && opened.isChanging && (at.name.value !== opened.name || at.value.value !== opened.value);

/* Does what the fields say, once. The dialog stays open when that is refused. */
function save(event) {
	event.preventDefault();
	const mine = opened;
	if (mine.isBusy) return;
	const {entry, isNew} = mine;
	const now = entryWith(entry?.key);
	const name = !isNew && at.name.value === mine.name ? entry.name : at.name.value;
	const value = !isNew && at.value.value === mine.value ? entry.value : at.value.value;
	if (now?.name === name && now.value === value) return at.opened.close();
	if (now && now.value !== entry.value && !confirm(`Somebody has changed ${called(name)} to ${called(now.value)}. Overwrite that?`)) return;
	mine.isBusy = true;
	showOpened();
	say(at.refusal, '');
	const text = !now ? `Added ${called(name)} at the end.` : name === now.name ? `${called(name)} is ${called(value)} now.` : `Renamed ${called(now.name)} to ${called(name)}.`;
	attempt(async () => {
		try {
			const {added} = await make(now ? replacing(now, {name, value}) : inserting({name, value}), text);
			at.opened.close();
			if (added) reach(added);
		} finally {
			mine.isBusy = false;
			if (at.opened.open) showOpened();
		}
	}, mine);
}

const remove = entry => attempt(() => make(removing(entry), `Deleted ${called(entry.name)}.`));

at.opened.onkeydown = event => {
	const {key} = event;
	if (key === 'Escape' && !event.isComposing) {
		// browsers let nothing stop the second in a row
		event.preventDefault();
		if (mayLeave()) at.opened.close();
	}
	if (event.ctrlKey || event.altKey || event.metaKey || opened.isChanging) return;
	const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns};
	if (key in steps) step(steps[key]);
	else if (/^[1-5]$/.test(key)) at.formats.children[key - 1]?.click();
	else if (key.toLowerCase() === 'c') attempt(() => copy(opened.entry.value, at.formats.firstChild), opened);
	else if (!/^(F2|Delete)$/.test(key) || !entryWith(opened.entry.key)) return;
	else if (!mayChange()) refuse();
	else if (key === 'F2') edit(opened.entry);
	else if (!event.repeat) at.delete.click();
	event.preventDefault();
	event.stopPropagation();
};
addEventListener('beforeunload', event => isTyped() && event.preventDefault());
at.opened.oncancel = event => mayLeave() || event.preventDefault();
at.fields.onsubmit = save;
at.opened.onclose = () => {
	writeAddress();
	opened.isNew ? draw() : focusOn(current);
};
at.previous.onclick = () => step(-1);
at.next.onclick = () => step(1);
at.unlock.onclick = () => attempt(give);
at.rename.onclick = () => edit(opened.entry, at.name);
at.change.onclick = () => edit(opened.entry);
at.cancel.onclick = () => opened.isBusy || (opened.isNew ? at.opened.close() : open(entryWith(opened.entry.key) ?? opened.entry));
at.delete.onclick = () => {
	at.opened.close();
	remove(opened.entry);
};
at.again.onclick = () => {
	const {name, value} = opened.entry;
	attempt(() => make(inserting({name, value}), `Added ${called(name)} at the end.`), opened);
};
at.name.oninput = at.value.oninput = showOpened;
at.picker.oninput = () => {
	const {alpha = 1} = lookOf(at.value.value);
	// a picker has none
	at.value.value = at.picker.value + (alpha < 1 ? hexOf([alpha]).slice(1) : '');
	showOpened();
};
