//! A strip of the picture with curves over time.

use super::{
    FAINT, GREY, INK, LEFT,
    axis::{Time, Unit},
    series,
    svg::{Svg, Text, text_width},
};

const HEIGHT: f64 = 76.0;
/// Above the strip: its title and legend.
const TITLE: f64 = 30.0;
const GRID: &str = "#e3e3e3";

/// See the module.
pub(super) struct Panel {
    title: &'static str,
    unit: Unit,
    /// One sentence about all of it.
    about: String,
    curves: Vec<Curve>,
    limit: Option<(&'static str, f64)>,
    stacked: bool,
}

/// One curve.
pub(super) struct Curve {
    label: &'static str,
    colour: &'static str,
    values: Vec<f64>,
    style: Style,
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// A line with a light area below it.
    Area,
    /// An area.
    Solid,
    Line,
}

impl Curve {
    pub(super) fn area(label: &'static str, colour: &'static str, values: Vec<f64>) -> Self {
        Self { label, colour, values, style: Style::Area }
    }

    pub(super) fn solid(label: &'static str, colour: &'static str, values: Vec<f64>) -> Self {
        Self { label, colour, values, style: Style::Solid }
    }

    pub(super) fn line(label: &'static str, colour: &'static str, values: Vec<f64>) -> Self {
        Self { label, colour, values, style: Style::Line }
    }
}

impl Panel {
    pub(super) fn new(title: &'static str, unit: Unit, about: String) -> Self {
        Self { title, unit, about, curves: Vec::new(), limit: None, stacked: false }
    }

    pub(super) fn with(mut self, curve: Curve) -> Self {
        self.curves.push(curve);
        self
    }

    pub(super) fn with_if(self, shown: bool, curve: Curve) -> Self {
        if shown { self.with(curve) } else { self }
    }

    /// A dashed line, where there is such a limit.
    pub(super) fn limit(mut self, label: &'static str, value: f64) -> Self {
        self.limit = (value > 0.0).then_some((label, value));
        self
    }

    /// Each curve stands on the one before.
    pub(super) fn stacked(mut self) -> Self {
        self.stacked = true;
        self
    }

    /// Draws it below `y`; returns where it ends.
    pub(super) fn draw(self, svg: &mut Svg, time: &Time, y: f64) -> f64 {
        let (top, bottom) = (y + TITLE, y + TITLE + HEIGHT);
        self.title_line(svg, time, top - 8.0);
        let mut base = vec![0.0; self.curves.first().map_or(0, |curve| curve.values.len())];
        let tops: Vec<(Vec<f64>, Vec<f64>)> = self
            .curves
            .iter()
            .map(|curve| {
                let low = base.clone();
                let high: Vec<f64> = low.iter().zip(&curve.values).map(|(low, value)| low + value).collect();
                if self.stacked {
                    base.clone_from(&high);
                }
                (low, high)
            })
            .collect();
        let most = tops.iter().map(|(_, high)| series::peak(high)).fold(0.0, f64::max);
        let most = most.max(self.limit.map_or(0.0, |(_, value)| value));
        let ticks = self.unit.ticks(most);
        let scale = HEIGHT / ticks.last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
        let at = |value: f64| bottom - value * scale;
        for (at_us, _) in time.ticks() {
            svg.line((time.x(at_us), top), (time.x(at_us), bottom), GRID, "stroke-width=\"1\"");
        }
        for tick in &ticks {
            svg.line((time.left(), at(*tick)), (time.right(), at(*tick)), GRID, "stroke-width=\"1\"");
            let look = Text { size: 10.0, fill: FAINT, anchor: "end", ..Text::default() };
            svg.text((LEFT - 6.0, at(*tick) + 3.5), look, &self.unit.written(*tick));
        }
        for (curve, (low, high)) in self.curves.iter().zip(&tops) {
            curve.draw(svg, time, (low, high), at);
        }
        if let Some((_, value)) = self.limit {
            let dashes = "stroke-width=\"1.2\" stroke-dasharray=\"5 4\"";
            svg.line((time.left(), at(value)), (time.right(), at(value)), INK, dashes);
        }
        svg.line((time.left(), bottom), (time.right(), bottom), GREY, "stroke-width=\"1\"");
        bottom
    }

    fn title_line(&self, svg: &mut Svg, time: &Time, y: f64) {
        svg.text((time.left(), y), Text { bold: true, ..Text::default() }, self.title);
        let about = Text { size: 11.0, fill: FAINT, anchor: "end", ..Text::default() };
        svg.text((time.right(), y), about, &self.about);
        let mut entries: Vec<(&str, String)> = Vec::new();
        for curve in &self.curves {
            entries.push((curve.colour, curve.label.to_owned()));
        }
        let x = time.left() + text_width(self.title, 13.0) + 22.0;
        svg.legend((x, y), f64::INFINITY, &entries);
        if let Some((label, value)) = self.limit {
            let before: f64 = entries.iter().map(|(_, label)| 31.0 + text_width(label, 11.0)).sum();
            let x = x + before;
            svg.line((x, y - 4.0), (x + 18.0, y - 4.0), INK, "stroke-width=\"1.2\" stroke-dasharray=\"5 4\"");
            let label = format!("{label}: {}", self.unit.written(value));
            svg.text((x + 23.0, y), Text { size: 11.0, ..Text::default() }, &label);
        }
    }
}

impl Curve {
    fn draw(&self, svg: &mut Svg, time: &Time, (low, high): (&[f64], &[f64]), at: impl Fn(f64) -> f64) {
        let count = high.len();
        let edge = |nth: usize| time.x((time.duration_us() as u128 * nth as u128 / count.max(1) as u128) as u64);
        // Each piece of time is a step: a curve through points would show what was not measured.
        let steps = |values: &[f64]| -> Vec<(f64, f64)> {
            let corners = values.iter().enumerate();
            corners.flat_map(|(nth, value)| [(edge(nth), at(*value)), (edge(nth + 1), at(*value))]).collect()
        };
        let upper = steps(high);
        if self.style != Style::Line {
            let opacity = if self.style == Style::Area { 0.25 } else { 0.9 };
            let around = upper.iter().copied().chain(steps(low).into_iter().rev());
            let fill = format!("fill=\"{}\" fill-opacity=\"{opacity}\" stroke=\"none\"", self.colour);
            svg.path(around, true, &fill);
        }
        if self.style != Style::Solid {
            let stroke = format!("fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\"", self.colour);
            svg.path(upper.into_iter(), false, &stroke);
        }
    }
}
