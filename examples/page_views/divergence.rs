//! How far what a look shows is from the truth.

use std::collections::BTreeMap;

/// Pages of each language that the divergence is of.
pub const PAGES: usize = 10;
/// Views of a page that a look does not show: it has fewer than any that is.
const ABSENT_VIEWS: f64 = 0.5;
/// Groups whose largest relative error is told.
pub const GROUPS: usize = 20;

/// Views of pages, by language and title.
pub type Views = BTreeMap<String, BTreeMap<String, f64>>;

/// The pages of the truth that looks are judged by.
#[derive(Debug)]
pub struct Truth {
    /// Of each language the first [`PAGES`].
    tops: BTreeMap<String, Vec<(String, f64)>>,
    /// The largest [`GROUPS`] of all: language, title, views.
    largest: Vec<(String, String, f64)>,
}

impl Truth {
    pub fn new(views: &Views) -> Self {
        let top = |pages: &BTreeMap<String, f64>| {
            let mut pages: Vec<_> = pages.iter().map(|(title, views)| (title.clone(), *views)).collect();
            // Of equal ones the first title.
            pages.sort_by(|one, other| other.1.total_cmp(&one.1));
            pages
        };
        let all: BTreeMap<_, _> = views.iter().map(|(lang, pages)| (lang.clone(), top(pages))).collect();
        let of = |(lang, pages): (&String, &Vec<(String, f64)>)| {
            pages.iter().map(|(title, views)| (lang.clone(), title.clone(), *views)).collect::<Vec<_>>()
        };
        let mut largest: Vec<_> = all.iter().flat_map(of).collect();
        largest.sort_by(|one, other| other.2.total_cmp(&one.2));
        largest.truncate(GROUPS);
        let mut tops = all;
        tops.values_mut().for_each(|pages| pages.truncate(PAGES));
        Self { tops, largest }
    }

    /// Of each language the first pages and their views.
    pub fn tops(&self) -> &BTreeMap<String, Vec<(String, f64)>> {
        &self.tops
    }

    /// The divergence of Kullback and Leibler, in nats: over the true top pages of a language, of the shares that they truly have of the views of these pages, `p`, from the shares that they have by a
    /// look, `q`: the sum of `p ln(p / q)`. A page that the look does not show has half a view. It is the mean over languages, each of which counts as much as the others. `None`: nothing is shown.
    pub fn divergence(&self, shown: &Views) -> Option<f64> {
        if shown.values().all(BTreeMap::is_empty) || self.tops.is_empty() {
            return None;
        }
        let of_language = |(lang, pages): (&String, &Vec<(String, f64)>)| {
            let shown = |title| shown.get(lang).and_then(|pages| pages.get(title)).copied().unwrap_or(0.0);
            let by_look: Vec<f64> = pages.iter().map(|(title, _)| shown(title).max(ABSENT_VIEWS)).collect();
            let all = pages.iter().map(|(_, views)| views).sum::<f64>();
            let all_by_look: f64 = by_look.iter().sum();
            let terms = pages.iter().zip(by_look).filter(|((_, views), _)| *views > 0.0);
            terms.map(|((_, views), by_look)| views / all * (views / all / (by_look / all_by_look)).ln()).sum::<f64>()
        };
        // What is rounded may be less than nothing.
        Some((self.tops.iter().map(of_language).sum::<f64>() / self.tops.len() as f64).max(0.0))
    }

    /// By how much the views of one of the largest groups are wrong, as a part of what they are, at most. One that is not shown is wrong by all of it. `None`: nothing is shown.
    pub fn largest_error(&self, shown: &Views) -> Option<f64> {
        if shown.values().all(BTreeMap::is_empty) {
            return None;
        }
        let error = |(lang, title, views): &(String, String, f64)| {
            let shown = shown.get(lang).and_then(|pages| pages.get(title)).copied().unwrap_or(0.0);
            (shown - views).abs() / views
        };
        self.largest.iter().filter(|(_, _, views)| *views > 0.0).map(error).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views(of: &[(&str, &str, f64)]) -> Views {
        let mut views = Views::new();
        for (lang, title, number) in of {
            views.entry((*lang).to_owned()).or_default().insert((*title).to_owned(), *number);
        }
        views
    }

    fn check(truth: &Views, shown: &Views, expected: f64) {
        let found = Truth::new(truth).divergence(shown).unwrap();
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }

    #[test]
    fn the_divergence_is_of_shares() {
        let truth = views(&[("en", "a", 300.0), ("en", "b", 100.0)]);
        check(&truth, &truth, 0.0);
        // A sample that has the same shares is right.
        check(&truth, &views(&[("en", "a", 6.0), ("en", "b", 2.0), ("en", "c", 1.0)]), 0.0);
        let (p, q) = (0.75_f64, 0.5_f64);
        let expected = p * (p / q).ln() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).ln();
        check(&truth, &views(&[("en", "a", 9.0), ("en", "b", 9.0)]), expected);
        // Languages count alike.
        let two = views(&[("en", "a", 300.0), ("en", "b", 100.0), ("de", "c", 1.0)]);
        check(&two, &views(&[("en", "a", 9.0), ("en", "b", 9.0), ("de", "c", 4.0)]), expected / 2.0);
    }

    #[test]
    fn a_page_that_is_absent_has_half_a_view() {
        let truth = views(&[("en", "a", 300.0), ("en", "b", 100.0)]);
        let expected = 0.75 * (0.75_f64 / (9.5 / 10.0)).ln() + 0.25 * (0.25_f64 / (0.5 / 10.0)).ln();
        check(&truth, &views(&[("en", "a", 9.5), ("en", "z", 70.0)]), expected);
        assert_eq!(Truth::new(&truth).divergence(&Views::new()), None);
    }

    #[test]
    fn no_more_than_the_first_pages_are_looked_at() {
        let number = |title: usize| ("en".to_owned(), format!("p{title:02}"), 100.0 - title as f64);
        let of: Vec<_> = (0..30).map(number).collect();
        let all: Vec<_> = of.iter().map(|(lang, title, views)| (lang.as_str(), title.as_str(), *views)).collect();
        let truth = Truth::new(&views(&all));
        assert_eq!(truth.tops()["en"].len(), PAGES);
        assert_eq!(truth.divergence(&views(&all[..PAGES])), Some(0.0));
        assert!(truth.divergence(&views(&all[..PAGES - 1])).unwrap() > 0.1);
        assert_eq!(truth.largest_error(&views(&all[..GROUPS])), Some(0.0));
        assert_eq!(truth.largest_error(&views(&all[..GROUPS - 1])), Some(1.0));
        let half = views(&[("en", "p00", 50.0)]);
        assert_eq!(Truth::new(&views(&all[..1])).largest_error(&half), Some(0.5));
    }
}
