
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

/* Sorts by OKLCH (CSS Color 4 §9.3): grays and near-blacks behind the hues, light before dark, and so within a degree of hue. */
function lookOfRgb(css, rgb, alpha) {
	const weigh = (weights, channels) => weights.reduce((sum, weight, i) => sum + weight * channels[i], 0);
	const light = rgb.map(linear);
	const lms = [[0.4122, 0.5363, 0.0515], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.63]].map(weights => Math.cbrt(weigh(weights, light)));
	const darkness = 1 - weigh([0.2105, 0.7936, -0.0041], lms);
	const [a, b] = [weigh([1.978, -2.4286, 0.4506], lms), weigh([0.0259, 0.7828, -0.8087], lms)];
	const isGray = Math.hypot(a, b) < 0.04 || darkness > 0.85;
	const hue = isGray ? 1000 : Math.round(Math.atan2(b, a) * 180 / Math.PI + 360) % 360;
	return {css, rgb, alpha, hue: hue + darkness / 2, darkness};
}

/* A channel from 0 to 255, without its gamma (WCAG 2.2, relative luminance). */
function linear(channel) {
	const c = channel / 255;
	return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}

/* Gives an element the ground of a value, and the ink with more contrast: at least 4.58. No color is hatched. */
/* Below a color with alpha is a checkerboard, and texts on it have a ground of their own. */
function paint({style, classList}, value) {
	const look = lookOf(value);
	const {css, rgb, alpha} = look;
	const [r, g, b] = rgb?.map(linear) ?? [];
	style.color = alpha === 1 ? 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.1791 ? '#000' : '#fff' : '';
	style.background = alpha < 1 ? `linear-gradient(${css} 0 0), var(--checks)` : css ?? '';
	classList.toggle('alpha', alpha < 1);
	return look;
}
