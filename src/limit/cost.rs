//! Costs: the hits that a rule counts for the hits of a request.
//!
//! A cost multiplies hits by a fraction. Hits that are taken are rounded up, and hits that are given
//! back are rounded down. So a request never pays less than its cost, and never gets back more than it
//! has paid.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::HITS_END;

/// The most factors of one cost.
pub const FACTORS_MAX: usize = 10_000;

/// The most digits of a factor after its point.
const DIGITS_MAX: usize = 9;

/// One, in units of the last digit of a factor.
const SCALE: u64 = 10_u64.pow(DIGITS_MAX as u32);

/// A factor of hits: a reduced fraction, which is not negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Factor {
    numerator: u32,
    /// Never 0.
    denominator: u32,
}

/// Factors by the value of an entry.
pub type FactorsByValue = HashMap<Box<str>, Factor>;

/// The cost of the hits of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// One factor for all hits. It is not 0.
    Fixed(Factor),
    /// A factor that depends on the value of an entry.
    ByValue {
        /// The index of the entry in the descriptor.
        level: usize,
        /// The factors, at most [`FACTORS_MAX`]. Rules that an overlay changes share them.
        factors: Arc<FactorsByValue>,
        /// The factor of other values.
        default: Factor,
    },
}

/// Why a text or a fraction is not a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FactorError {
    /// Neither a number nor a fraction.
    #[error("it is no number and no fraction")]
    NotANumber,
    /// A minus sign.
    #[error("it must not be negative")]
    Negative,
    /// A zero before another digit.
    #[error("leading zeros mean octal to some readers")]
    LeadingZero,
    /// A denominator of 0.
    #[error("its denominator is 0")]
    ZeroDenominator,
    /// More than nine digits after the point.
    #[error("it has more than {DIGITS_MAX} digits after the point")]
    TooPrecise,
    /// A numerator or denominator that does not fit into 32 bits when the fraction is reduced.
    #[error("as a reduced fraction, it has a number over {}", u32::MAX)]
    TooLarge,
}

impl Factor {
    /// The factor 0: nothing is counted.
    pub const ZERO: Factor = Factor { numerator: 0, denominator: 1 };

    /// The factor 1: hits count as they are.
    pub const ONE: Factor = Factor { numerator: 1, denominator: 1 };

    /// The factor `numerator / denominator`.
    ///
    /// # Errors
    /// The denominator is 0, or the reduced fraction does not fit into 32 bits.
    pub fn new(numerator: u64, denominator: u64) -> Result<Factor, FactorError> {
        Factor::reduced(u128::from(numerator), u128::from(denominator))
    }

    fn reduced(numerator: u128, denominator: u128) -> Result<Factor, FactorError> {
        if denominator == 0 {
            return Err(FactorError::ZeroDenominator);
        }
        let divisor = greatest_common_divisor(numerator, denominator);
        let part = |number: u128| u32::try_from(number / divisor);
        let numerator = part(numerator).map_err(|_| FactorError::TooLarge)?;
        let denominator = part(denominator).map_err(|_| FactorError::TooLarge)?;
        Ok(Factor { numerator, denominator })
    }

    /// The numerator of the reduced fraction.
    pub const fn numerator(self) -> u32 {
        self.numerator
    }

    /// The denominator of the reduced fraction, never 0.
    pub const fn denominator(self) -> u32 {
        self.denominator
    }

    /// Whether the factor is a whole number, so that nothing is rounded.
    pub const fn is_whole(self) -> bool {
        self.denominator == 1
    }

    /// `hits` times the factor: positive hits rounded up, negative hits towards 0. At most 2^53 - 1 in
    /// either direction. 0 stays 0.
    #[inline]
    pub fn weigh(self, hits: i64) -> i64 {
        let (size, gives_back) = (hits.unsigned_abs(), hits < 0);
        let weighted = match size.checked_mul(u64::from(self.numerator)) {
            Some(product) => divide(product, u64::from(self.denominator), gives_back),
            None => {
                let product = u128::from(size) * u128::from(self.numerator);
                let denominator = u128::from(self.denominator);
                let quotient =
                    if gives_back { product / denominator } else { product.div_ceil(denominator) };
                u64::try_from(quotient).unwrap_or(u64::MAX)
            }
        };
        let weighted = weighted.min(HITS_END - 1) as i64;
        if gives_back { -weighted } else { weighted }
    }
}

/// The quotient, rounded down or up.
fn divide(product: u64, denominator: u64, down: bool) -> u64 {
    if down { product / denominator } else { product.div_ceil(denominator) }
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl FromStr for Factor {
    type Err = FactorError;

    /// Reads a whole number, a decimal number, or a fraction of two whole numbers.
    fn from_str(text: &str) -> Result<Factor, FactorError> {
        if text.starts_with('-') {
            return Err(FactorError::Negative);
        }
        if let Some((numerator, denominator)) = text.split_once('/') {
            return Factor::reduced(whole(numerator.trim())?, whole(denominator.trim())?);
        }
        let Some((before, after)) = text.split_once('.') else {
            return Factor::reduced(whole(text)?, 1);
        };
        let decimals = digits(after)?;
        if after.len() > DIGITS_MAX {
            return Err(FactorError::TooPrecise);
        }
        let scale = 10_u128.pow(after.len() as u32);
        let scaled =
            whole(before)?.checked_mul(scale).and_then(|whole| whole.checked_add(decimals));
        Factor::reduced(scaled.ok_or(FactorError::TooLarge)?, scale)
    }
}

/// A whole number without leading zeros.
fn whole(text: &str) -> Result<u128, FactorError> {
    let number = digits(text)?;
    if text.len() > 1 && text.starts_with('0') {
        return Err(FactorError::LeadingZero);
    }
    Ok(number)
}

fn digits(text: &str) -> Result<u128, FactorError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FactorError::NotANumber);
    }
    text.parse().map_err(|_| FactorError::TooLarge)
}

impl fmt::Display for Factor {
    /// A whole or decimal number if that is exact, else a fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (numerator, denominator) = (u64::from(self.numerator), u64::from(self.denominator));
        if self.is_whole() {
            return write!(f, "{numerator}");
        }
        if !SCALE.is_multiple_of(denominator) {
            return write!(f, "{numerator}/{denominator}");
        }
        // Below 2^32 times 10^9, which fits.
        let scaled = numerator * (SCALE / denominator);
        let decimals = format!("{:0width$}", scaled % SCALE, width = DIGITS_MAX);
        write!(f, "{}.{}", scaled / SCALE, decimals.trim_end_matches('0'))
    }
}

impl Cost {
    /// The factor for a descriptor whose entry number `level` has the value `value(level)`.
    #[inline]
    pub fn factor<'v>(&self, value: impl FnOnce(usize) -> Option<&'v str>) -> Factor {
        match self {
            Cost::Fixed(factor) => *factor,
            Cost::ByValue { level, factors, default } => {
                let found = value(*level).and_then(|value| factors.get(value));
                found.copied().unwrap_or(*default)
            }
        }
    }
}

#[cfg(test)]
mod tests;
