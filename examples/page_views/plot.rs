//! The picture: how far looks are from the truth, over the time that the batch takes. Both axes are logarithmic.

use std::fmt::Write as _;

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What was asked for, in a line.
    pub about: String,
    /// Looks, in the order of time.
    pub points: Vec<Point>,
    /// What the paper says.
    pub paper: Point,
}

/// A divergence, in nats, at a time as a part of that of the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub part_of_batch: f64,
    pub divergence: f64,
}

/// All lengths are in pixels of the picture.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 580.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 36.0;
const TOP: f64 = 96.0;
const BOTTOM: f64 = 66.0;

/// Colours of Okabe and Ito, and greys.
const BLUE: &str = "#0072B2";
const VERMILLION: &str = "#D55E00";
const INK: &str = "#222222";
const FAINT: &str = "#666666";
const GRID: &str = "#e4e4e4";

/// An axis whose ends are whole powers of ten, or are near what is on it.
struct Axis {
    /// Logarithms of the ends.
    values: (f64, f64),
    pixels: (f64, f64),
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        let part = ((value.log10() - low) / (high - low)).clamp(0.0, 1.0);
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// 1, 2 and 5 of each power of ten; where these are many, the powers.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.values;
        let steps: &[f64] = if high - low > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = low.floor() as i32..=high.ceil() as i32;
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        all.filter(|value| (low - 1e-9..=high + 1e-9).contains(&value.log10())).collect()
    }
}

pub fn svg(curve: &Curve) -> String {
    let Curve { about, points, paper } = curve;
    let known = points.iter().chain([paper]);
    let parts = known.clone().map(|point| point.part_of_batch.log10());
    let x = Axis {
        values: (parts.clone().fold(f64::MAX, f64::min).min(-2.0) - 0.05, parts.fold(0.0, f64::max) + 0.1),
        pixels: (LEFT, WIDTH - RIGHT),
    };
    // What is exact has no logarithm: it is at the lower end.
    let divergences = known.filter(|point| point.divergence > 0.0).map(|point| point.divergence.log10());
    let lowest = divergences.clone().fold(f64::MAX, f64::min).max(-7.0);
    let y = Axis {
        values: (lowest.floor() - 0.25, divergences.fold(f64::MIN, f64::max).ceil().max(0.0)),
        pixels: (HEIGHT - BOTTOM, TOP),
    };

    let mut svg = Svg::default();
    svg.text((LEFT, 30.0), (18.0, INK, "start"), "Top pages of each language, before all was read");
    svg.text((LEFT, 50.0), (12.0, FAINT, "start"), about);
    for part in x.ticks() {
        svg.line((x.at(part), TOP), (x.at(part), HEIGHT - BOTTOM), (GRID, ""));
        svg.text((x.at(part), HEIGHT - BOTTOM + 18.0), (12.0, INK, "middle"), &percent(part));
    }
    for divergence in y.ticks() {
        svg.line((LEFT, y.at(divergence)), (WIDTH - RIGHT, y.at(divergence)), (GRID, ""));
        svg.text((LEFT - 8.0, y.at(divergence) + 4.0), (12.0, INK, "end"), &percent(divergence));
    }
    svg.text(
        ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 18.0),
        (13.0, INK, "middle"),
        "time, as a part of that of the batch",
    );
    svg.text((LEFT, TOP - 10.0), (13.0, INK, "start"), "KL divergence");

    for (at, colour, label) in [(1.0, INK, "the batch ends"), (paper.part_of_batch, VERMILLION, "1/22")] {
        svg.line((x.at(at), TOP), (x.at(at), HEIGHT - BOTTOM), (colour, " stroke-dasharray=\"5 4\""));
        svg.text((x.at(at) - 6.0, TOP + 16.0), (12.0, colour, "end"), label);
    }

    let place = |point: &Point| {
        let is_exact = point.divergence <= 0.0;
        (x.at(point.part_of_batch), if is_exact { HEIGHT - BOTTOM } else { y.at(point.divergence) })
    };
    let corners: Vec<String> = points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    svg.put(format_args!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{BLUE}\" stroke-width=\"2\"/>",
        corners.join(" ")
    ));
    for point in points {
        let ((x, y), is_exact) = (place(point), point.divergence <= 0.0);
        let fill = if is_exact { "#ffffff" } else { BLUE };
        svg.put(format_args!(
            "<circle class=\"look\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{BLUE}\" stroke-width=\"2\"><title>{} at {}</title></circle>",
            percent(point.divergence),
            percent(point.part_of_batch)
        ));
        if is_exact {
            svg.text((x + 9.0, y - 6.0), (12.0, BLUE, "start"), "exact");
        }
    }
    if let Some((x, y)) = points.first().map(place) {
        svg.text((x + 10.0, y - 6.0), (13.0, BLUE, "start"), "exobus, each look");
    }
    let (x, y) = place(paper);
    svg.put(format_args!(
        "<path class=\"paper\" d=\"M {x:.1} {:.1} l 7 7 l -7 7 l -7 -7 z\" fill=\"{VERMILLION}\"/>",
        y - 7.0
    ));
    svg.text(
        (x + 12.0, y + 4.0),
        (13.0, VERMILLION, "start"),
        &format!("Exoshuffle paper: {}", percent(paper.divergence)),
    );
    svg.finish()
}

/// In percent, with as many digits as say something.
fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    let digits = if percent > 0.0 { (1.0 - percent.log10()).floor().clamp(0.0, 6.0) as usize } else { 0 };
    let text = format!("{percent:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

#[derive(Default)]
struct Svg(String);

impl Svg {
    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        // Text takes all that is written.
        let _ = writeln!(self.0, "{what}");
    }

    fn line(&mut self, (x, y): (f64, f64), (to_x, to_y): (f64, f64), (colour, more): (&str, &str)) {
        self.put(format_args!(
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" stroke=\"{colour}\"{more}/>"
        ));
    }

    fn text(&mut self, (x, y): (f64, f64), (size, fill, anchor): (f64, &str, &str), text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        // A white border: lines go through below it.
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{fill}\" text-anchor=\"{anchor}\" stroke=\"#ffffff\" stroke-width=\"4\" paint-order=\"stroke\">{text}</text>"
        ));
    }

    fn finish(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(points: &[(f64, f64)]) -> String {
        let point = |&(part_of_batch, divergence): &(f64, f64)| Point { part_of_batch, divergence };
        svg(&Curve {
            about: "3 < 4 rows".to_owned(),
            points: points.iter().map(point).collect(),
            paper: Point { part_of_batch: 1.0 / 22.0, divergence: 0.08 },
        })
    }

    #[test]
    fn it_has_the_looks_the_paper_and_the_end_of_the_batch() {
        let svg = picture(&[(0.02, 0.2), (0.1, 0.01), (1.3, 0.0)]);
        let count = |text: &str| svg.matches(text).count();
        assert_eq!((count("class=\"look\""), count("class=\"paper\""), count(">exact<")), (3, 1, 1));
        for text in
            [">1/22<", ">the batch ends<", ">Exoshuffle paper: 8 %<", ">KL divergence<", "3 &lt; 4 rows", ">1 %<"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn it_is_drawn_whatever_was_looked_at() {
        for points in [&[][..], &[(1.0, 0.0)], &[(0.000_01, 1e-12), (40.0, 300.0)]] {
            let svg = picture(points);
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{points:?}: {svg}");
        }
    }

    #[test]
    fn parts_are_said_with_the_digits_that_they_need() {
        let said = [0.08, 1.0, 0.002, 0.000_05, 0.123_4, 0.0].map(percent);
        assert_eq!(said, ["8 %", "100 %", "0.2 %", "0.005 %", "12 %", "0 %"]);
    }
}
