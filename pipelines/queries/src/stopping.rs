//! When a query that answers early has read enough.
//!
//! It is looked at where [`Looks`](crate::estimators::Looks) says and nowhere else, so an error is small enough at a look or at none: a query for which it is at no look reads everything, and its answer is exact.
//! A time is over at any moment, and people say at any moment that they have seen enough; what is reported then is the last look before it, or the first one where there was none yet.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::estimators::{Bounds, Estimate, Kind};

/// Where a query shows all of its groups, so many of them are judged, those that have the most rows.
pub const JUDGED: usize = 20;

/// What somebody waits for. As text `error=1%`, with `:guaranteed` or `:all` behind it or both, or `time=5s`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// Values are known as well as this.
    Error(ErrorGoal),
    /// So much time has gone by.
    Time(Duration),
}

impl Until {
    /// Which bounds are given where nothing else is said of them.
    pub fn bounds(&self) -> Kind {
        match self {
            Self::Error(ErrorGoal { guaranteed: true, .. }) => Kind::Guaranteed,
            _ => Kind::Approximate,
        }
    }

    /// Whether a query that has run so long, and was looked at so often, ends since its time is over.
    pub fn is_over(&self, elapsed: Duration, looks: u64) -> bool {
        matches!(self, Self::Time(time) if looks > 0 && elapsed >= *time)
    }
}

/// How well values have to be known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorGoal {
    /// Half of the width of the bounds of a value, as a part of the value, at most.
    pub most: f64,
    /// Whether bounds count only where they rest on no assumption.
    pub guaranteed: bool,
    /// Whether all groups are judged, not only those that are shown, or the [`JUDGED`] largest where all are.
    pub all: bool,
}

impl ErrorGoal {
    /// How many of the groups that a query has, the largest or those that it orders first, are judged, where it shows so many of them at most (`None`: it shows all).
    pub fn judged(&self, groups: usize, shown: Option<usize>) -> usize {
        if self.all { groups } else { groups.min(shown.unwrap_or(JUDGED)) }
    }

    /// Whether all values of these groups are known as well as that. A value without bounds is not, and where there is no value yet nothing is.
    pub fn is_met<'a>(&self, groups: impl IntoIterator<Item = &'a [Estimate]>) -> bool {
        let mut values = groups.into_iter().flatten().peekable();
        values.peek().is_some() && values.all(|value| self.is_known(value))
    }

    fn is_known(&self, value: &Estimate) -> bool {
        let counts = |bounds: &Bounds| !self.guaranteed || bounds.kind == Kind::Guaranteed || bounds.are_exact();
        value.bounds.as_ref().is_ok_and(counts) && value.relative_error().is_some_and(|error| error <= self.most)
    }
}

/// Why a text says nothing that can be waited for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntilError {
    /// It begins with something else.
    #[error("{0:?} is nothing to wait for: `error=1%`, `error=1%:guaranteed`, `error=1%:all` or `time=5s` is")]
    Unknown(String),
    /// The error is no part of a value.
    #[error("the error {0:?} is no number above 0 %, and below 100 %: `error=1%`, or `error=0.01`")]
    NoError(String),
    /// What stands behind the error is unknown.
    #[error("{0:?} says nothing of an error: `guaranteed` or `all` does, each once, as in `error=1%:guaranteed:all`")]
    NoQualifier(String),
    /// The time is none.
    #[error("the time {0:?} is no number above 0 with a unit: `time=5s`, or `time=2min`")]
    NoTime(String),
}

impl FromStr for Until {
    type Err = UntilError;

    fn from_str(text: &str) -> Result<Self, UntilError> {
        match text.trim().split_once('=') {
            Some(("error", goal)) => goal.parse().map(Self::Error),
            Some(("time", time)) => match humantime::parse_duration(time) {
                Ok(parsed) if !parsed.is_zero() => Ok(Self::Time(parsed)),
                _ => Err(UntilError::NoTime(time.to_owned())),
            },
            _ => Err(UntilError::Unknown(text.to_owned())),
        }
    }
}

impl FromStr for ErrorGoal {
    type Err = UntilError;

    fn from_str(text: &str) -> Result<Self, UntilError> {
        let mut parts = text.split(':');
        let error = parts.next().unwrap_or_default();
        let number = match error.strip_suffix('%') {
            Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
            None => error.trim().parse(),
        };
        let most = number.ok().filter(|most| *most > 0.0 && *most < 1.0);
        let most = most.ok_or_else(|| UntilError::NoError(error.to_owned()))?;
        let mut goal = Self { most, guaranteed: false, all: false };
        for qualifier in parts {
            let said = match qualifier {
                "guaranteed" => &mut goal.guaranteed,
                "all" => &mut goal.all,
                _ => return Err(UntilError::NoQualifier(qualifier.to_owned())),
            };
            if std::mem::replace(said, true) {
                return Err(UntilError::NoQualifier(qualifier.to_owned()));
            }
        }
        Ok(goal)
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(ErrorGoal { most, guaranteed, all }) => {
                // As people say it, where that is the same number.
                let percent = (most * 1e10).round() / 1e8;
                match percent / 100.0 == *most {
                    true => write!(f, "error={percent}%")?,
                    false => write!(f, "error={most}")?,
                }
                f.write_str(if *guaranteed { ":guaranteed" } else { "" })?;
                f.write_str(if *all { ":all" } else { "" })
            }
            Self::Time(time) => write!(f, "time={}", humantime::format_duration(*time)),
        }
    }
}

/// Why a query ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All was read, and the answer is exact. `missed`: the error that was waited for was larger at each look.
    Exact {
        /// See there.
        missed: Option<ErrorGoal>,
    },
    /// What was waited for was met.
    Met(Until),
    /// Somebody had seen enough.
    Asked,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact { missed: None } => f.write_str("everything was read: the answer is exact"),
            Self::Exact { missed: Some(until) } => {
                write!(
                    f,
                    "{until} was met at no look: everything was read, and the answer is exact",
                    until = Until::Error(*until)
                )
            }
            Self::Met(until @ Until::Error(_)) => write!(f, "{until} was met"),
            Self::Met(until) => write!(f, "{until} was over"),
            Self::Asked => f.write_str("it was stopped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::estimators::NoBounds;

    fn goal(text: &str) -> ErrorGoal {
        match text.parse().unwrap() {
            Until::Error(goal) => goal,
            Until::Time(time) => panic!("{time:?}"),
        }
    }

    #[test]
    fn what_is_waited_for_is_said_in_few_words() {
        let of = |most, guaranteed, all| ErrorGoal { most, guaranteed, all };
        assert_eq!(goal("error=1%"), of(0.01, false, false));
        assert_eq!(goal(" error=0.5:guaranteed"), of(0.5, true, false));
        assert_eq!(goal("error=2.5 %:all:guaranteed"), of(0.025, true, true));
        assert_eq!("time=1min 5s".parse(), Ok(Until::Time(Duration::from_secs(65))));
        let refused = |text: &str| text.parse::<Until>().unwrap_err().to_string();
        for text in ["error=0%", "error=100%", "error=1", "error=NaN", "error=-1%", "error=", "error=%", "error=inf"] {
            assert!(refused(text).starts_with("the error "), "{text}");
        }
        for text in ["error=1%:", "error=1%:some", "error=1%:all:all"] {
            assert!(refused(text).contains("says nothing of an error"), "{text}");
        }
        for text in ["time=0s", "time=", "time=5", "time=soon"] {
            assert!(refused(text).starts_with("the time "), "{text}");
        }
        for text in ["", "1%", "errors=1%", "error"] {
            assert!(refused(text).contains("is nothing to wait for"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_said_is_what_was_meant(most in 1e-6..0.999_f64, guaranteed: bool, all: bool, seconds in 1_u64..100_000) {
            for until in [Until::Error(ErrorGoal { most, guaranteed, all }), Until::Time(Duration::from_secs(seconds))] {
                prop_assert_eq!(until.to_string().parse(), Ok(until));
            }
        }
    }

    fn known(half_width: f64, kind: Kind) -> Estimate {
        let bounds = Ok(Bounds { low: 100.0 - half_width, high: 100.0 + half_width, kind, level: 0.95 });
        Estimate { value: 100.0, bounds }
    }

    #[test]
    fn a_goal_is_met_when_every_value_is_known_well_enough() {
        let (well, badly) = (known(0.9, Kind::Approximate), known(1.1, Kind::Approximate));
        let unknown = Estimate { value: 100.0, bounds: Err(NoBounds::OnlyAtTheEnd) };
        let met = |text: &str, values: &[Estimate]| goal(text).is_met([values]);
        assert!(met("error=1%", &[well, well]) && !met("error=1%", &[well, badly]) && met("error=2%", &[well, badly]));
        assert!(!met("error=50%", &[well, unknown]), "a value without bounds is not known");
        assert!(!goal("error=50%").is_met([]), "nothing is known of no groups");
        assert!(!goal("error=50%").is_met([&[][..]]), "nor of a group of which nothing is said");
        assert!(!goal("error=1%").is_met([&[well][..], &[badly]]), "of any group");
    }

    #[test]
    fn where_guaranteed_bounds_are_wanted_others_do_not_count() {
        let met = |value| goal("error=1%:guaranteed").is_met([&[value][..]]);
        assert!(met(known(0.5, Kind::Guaranteed)) && !met(known(0.5, Kind::Approximate)));
        let bounds = Ok(Bounds { low: 7.0, high: 7.0, kind: Kind::Approximate, level: 1.0 });
        assert!(met(Estimate { value: 7.0, bounds }), "what was read completely is known whatever it was estimated by");
    }

    #[test]
    fn the_groups_that_are_shown_are_judged_or_the_largest_or_all() {
        assert_eq!((goal("error=1%").judged(1000, Some(10)), goal("error=1%").judged(1000, None)), (10, JUDGED));
        assert_eq!((goal("error=1%").judged(5, Some(10)), goal("error=1%:all").judged(1000, Some(10))), (5, 1000));
    }

    #[test]
    fn a_time_is_over_when_there_was_a_look() {
        let until: Until = "time=5s".parse().unwrap();
        let over = |seconds, looks| until.is_over(Duration::from_secs(seconds), looks);
        assert!(over(5, 1) && !over(4, 7) && !over(60, 0));
        assert!(!"error=1%".parse::<Until>().unwrap().is_over(Duration::MAX, 7));
    }

    #[test]
    fn how_a_query_ended_is_said() {
        let said = Ended::Exact { missed: Some(goal("error=1%")) }.to_string();
        assert_eq!(said, "error=1% was met at no look: everything was read, and the answer is exact");
        assert_eq!(Ended::Met("time=5s".parse().unwrap()).to_string(), "time=5s was over");
        assert_eq!(Ended::Met("error=2%".parse().unwrap()).to_string(), "error=2% was met");
        assert_eq!(Until::Error(goal("error=0.3:all")).to_string(), "error=30%:all");
        assert_eq!(Until::Error(goal("error=0.123456789012345")).to_string(), "error=0.123456789012345");
        assert_eq!(Ended::Asked.to_string(), "it was stopped");
    }
}
