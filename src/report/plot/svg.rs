//! The few shapes that a picture is made of.

use std::fmt::Write as _;

/// A picture that grows downwards.
pub(super) struct Svg {
    body: String,
    width: f64,
}

/// How a text looks.
#[derive(Clone, Copy)]
pub(super) struct Text {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) fill: &'static str,
    /// "start", "middle" or "end": which of its points is where it is put.
    pub(super) anchor: &'static str,
}

impl Default for Text {
    fn default() -> Self {
        Self { size: 12.0, bold: false, fill: super::INK, anchor: "start" }
    }
}

impl Svg {
    pub(super) fn new(width: f64) -> Self {
        Self { body: String::new(), width }
    }

    /// The whole file; `height` of what was drawn.
    pub(super) fn finish(self, height: f64) -> String {
        let Self { body, width } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width} {height:.0}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n\
             <defs><pattern id=\"failed\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><rect width=\"4\" height=\"4\" fill=\"#fff\"/>\
             <rect width=\"2\" height=\"4\" fill=\"#000\"/></pattern></defs>\n\
             <rect width=\"{width}\" height=\"{height:.0}\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), look: Text, text: &str) {
        let weight = if look.bold { " font-weight=\"bold\"" } else { "" };
        let anchor = if look.anchor == "start" { String::new() } else { format!(" text-anchor=\"{}\"", look.anchor) };
        let (size, fill, text) = (look.size, look.fill, escaped(text));
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{fill}\"{weight}{anchor}>{text}</text>\n"
        ));
    }

    /// A filled rectangle; `more` are further attributes, `title` what is shown when the pointer is over it.
    pub(super) fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str, more: &str, title: &str) {
        let space = if more.is_empty() { "" } else { " " };
        self.put(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" fill=\"{fill}\"{space}{more}"
        ));
        match title {
            "" => self.put(format_args!("/>\n")),
            title => self.put(format_args!("><title>{}</title></rect>\n", escaped(title))),
        }
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, more: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{stroke}\" {more}/>\n"
        ));
    }

    /// A line through points; `more` are its attributes.
    pub(super) fn path(&mut self, points: impl Iterator<Item = (f64, f64)>, close: bool, more: &str) {
        self.put(format_args!("<path d=\""));
        for (index, (x, y)) in points.enumerate() {
            self.put(format_args!("{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' }));
        }
        self.put(format_args!("{}\" {more}/>\n", if close { "Z" } else { "" }));
    }

    /// Swatches with labels from left to right, beginning at `x`; a new row begins where `right` would be crossed.
    /// Returns the y of the last row.
    pub(super) fn legend(&mut self, (x, y): (f64, f64), right: f64, entries: &[(&str, String)]) -> f64 {
        let (mut at, mut row) = (x, y);
        for (fill, label) in entries {
            let width = 15.0 + text_width(label, 11.0) + 16.0;
            if at + width > right && at > x {
                (at, row) = (x, row + 16.0);
            }
            self.rect((at, row - 9.0), (10.0, 10.0), fill, "class=\"legend\"", "");
            self.text((at + 15.0, row), Text { size: 11.0, ..Text::default() }, label);
            at += width;
        }
        row
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("a String takes everything");
    }
}

/// About; fonts differ.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}

/// For text and attribute values; what XML does not allow at all is shown as a question mark.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' | '\r' => escaped.push(letter),
            control if (control as u32) < 0x20 || matches!(control, '\u{fffe}' | '\u{ffff}') => escaped.push('?'),
            other => escaped.push(other),
        }
    }
    escaped
}
