
/* What a value looks like, where it sorts, and in which ink a name is readable on it. */

const at = Object.fromEntries([...document.querySelectorAll('[id]')].map(element => [element.id, element]));
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const looks = new Map();

/* {css, rgb, alpha, hue, darkness}; without css when the value is not a color. */
function lookOf(value) {
	if (!looks.has(value)) looks.set(value, makeLook(value));
	return looks.get(value);
}

function makeLook(value) {
	// a canvas keeps the color it has when it is given something else
	const [css, second] = ['#000', '#fff'].map(before => {
		canvas.fillStyle = before;
		canvas.fillStyle = value;
		return canvas.fillStyle;
	});
	if (css !== second) return {hue: 3000, darkness: 2};
	const hex = /^#(..)(..)(..)$/.exec(css);
	if (hex) return lookOfRgb(css, hex.slice(1).map(pair => parseInt(pair, 16)), 1);
	canvas.clearRect(0, 0, 1, 1);
	canvas.fillRect(0, 0, 1, 1);
	const [r, g, b, alpha] = canvas.getImageData(0, 0, 1, 1).data;
	return lookOfRgb(css, [r, g, b], alpha / 255);
}

/* Grays sort behind the hues, and light comes before dark. */
function lookOfRgb(css, rgb, alpha) {
	const [r, g, b] = rgb;
	const [x, y] = [2 * r - g - b, Math.sqrt(3) * (g - b)];
	const darkness = 1 - luminance(rgb);
	const hue = Math.hypot(x, y) < 15 ? 1000 + darkness : (Math.atan2(y, x) * 180 / Math.PI + 360) % 360;
	return {css, rgb, alpha, hue, darkness};
}

/* Relative luminance, 0 to 1 (WCAG 2.2), of channels from 0 to 255. */
function luminance(rgb) {
	const [r, g, b] = rgb.map(channel => {
		const c = channel / 255;
		return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
	});
	return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/* Gives an element the ground of a value, and the ink with more contrast: at least 4.58. No color is hatched. */
function paint({style}, value) {
	const look = lookOf(value);
	const {css, rgb, alpha} = look;
	style.color = style.background = '';
	if (!css) return look;
	const under = lookOf(getComputedStyle(document.body).backgroundColor).rgb;
	const light = luminance(rgb.map((channel, i) => channel * alpha + under[i] * (1 - alpha)));
	style.color = (light + 0.05) ** 2 > 0.0525 ? '#000' : '#fff';
	style.background = alpha < 1 ? `linear-gradient(${css} 0 0), var(--ground)` : css;
	return look;
}
