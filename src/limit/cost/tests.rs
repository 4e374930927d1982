//! Tests of factors: their texts, and the hits that they weigh.

use proptest::prelude::*;

use super::*;

const MAX: i64 = (HITS_END - 1) as i64;

fn factor(text: &str) -> Factor {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn numbers_and_fractions_are_reduced() {
    for (text, numerator, denominator, shown) in [
        ("0", 0, 1, "0"),
        ("0/7", 0, 1, "0"),
        ("0.0", 0, 1, "0"),
        ("1", 1, 1, "1"),
        ("3", 3, 1, "3"),
        ("2.50", 5, 2, "2.5"),
        ("0.25", 1, 4, "0.25"),
        ("1.125", 9, 8, "1.125"),
        ("1/3", 1, 3, "1/3"),
        ("10 / 4", 5, 2, "2.5"),
        ("12/4", 3, 1, "3"),
        ("0.000000001", 1, 1_000_000_000, "0.000000001"),
        ("4.294967295", 858_993_459, 200_000_000, "4.294967295"),
        ("4294967295", u32::MAX, 1, "4294967295"),
        ("1/4294967295", 1, u32::MAX, "1/4294967295"),
        ("8589934590/2", u32::MAX, 1, "4294967295"),
    ] {
        let read = factor(text);
        assert_eq!((read.numerator(), read.denominator()), (numerator, denominator), "{text}");
        assert_eq!(read.to_string(), shown, "{text}");
        assert_eq!(read.is_whole(), denominator == 1, "{text}");
    }
    assert_eq!((factor("0"), factor("1")), (Factor::ZERO, Factor::ONE));
}

#[test]
fn other_texts_are_refused_with_the_reason() {
    use FactorError::*;
    let long = "9".repeat(60);
    for (text, why) in [
        ("", NotANumber),
        ("abc", NotANumber),
        ("1e3", NotANumber),
        ("+1", NotANumber),
        ("1_000", NotANumber),
        ("0x10", NotANumber),
        (".5", NotANumber),
        ("5.", NotANumber),
        ("1.2.3", NotANumber),
        ("/", NotANumber),
        ("1/2/3", NotANumber),
        ("1/0.5", NotANumber),
        ("1/-2", NotANumber),
        ("\u{663}", NotANumber),
        ("-1", Negative),
        ("-1/2", Negative),
        ("010", LeadingZero),
        ("00.5", LeadingZero),
        ("1/02", LeadingZero),
        ("1/0", ZeroDenominator),
        ("0/0", ZeroDenominator),
        ("1.0000000001", TooPrecise),
        ("4294967296", TooLarge),
        ("1/4294967296", TooLarge),
        ("4294967295.5", TooLarge),
        ("340282366920938463463374607431768211455.5", TooLarge),
        (&*long, TooLarge),
    ] {
        assert_eq!(text.parse::<Factor>(), Err(why), "{text}");
    }
    assert_eq!(Factor::new(1, 0), Err(ZeroDenominator));
    assert_eq!(Factor::new(1 << 40, 1 << 39), Factor::new(2, 1));
    assert_eq!(Factor::new(u64::MAX, 1), Err(TooLarge));
}

#[test]
fn takes_are_rounded_up_and_give_backs_down() {
    for (hits, by, weighted) in [
        (0, "3", 0),
        (0, "1/3", 0),
        (7, "0", 0),
        (-7, "0", 0),
        (1, "3", 3),
        (1, "1/2", 1),
        (3, "1/2", 2),
        (4, "1/2", 2),
        (-1, "1/2", 0),
        (-3, "1/2", -1),
        (-4, "1/2", -2),
        (1, "0.000000001", 1),
        (1_000_000_001, "0.000000001", 2),
        (-1_999_999_999, "0.000000001", -1),
        (MAX, "1", MAX),
        (-MAX, "1", -MAX),
        // 2^53 - 1 is not a multiple of 3.
        (MAX, "1/3", 3_002_399_751_580_331),
        (-MAX, "1/3", -3_002_399_751_580_330),
        (MAX, "1.000000001", MAX),
        (MAX, "4294967295", MAX),
        (-MAX, "4294967295", -MAX),
        (i64::MAX, "2", MAX),
        (i64::MIN, "4294967295", -MAX),
    ] {
        assert_eq!(factor(by).weigh(hits), weighted, "{hits} by {by}");
    }
}

#[test]
fn a_value_selects_its_factor() {
    let factors = [("large", "10"), ("small", "1/2"), ("", "7")];
    let factors = factors.map(|(value, text)| (Box::from(value), factor(text)));
    let factors = Arc::new(FactorsByValue::from(factors));
    let cost = Cost::ByValue { level: 1, factors, default: factor("2") };
    for (entries, expected) in [
        (vec!["acme", "large"], "10"),
        (vec!["acme", "small"], "1/2"),
        (vec!["acme", ""], "7"),
        (vec!["acme", "Large"], "2"),
        (vec!["large", "other"], "2"),
        (vec!["large"], "2"),
    ] {
        let found = cost.factor(|level| entries.get(level).copied());
        assert_eq!(found, factor(expected), "{entries:?}");
    }
    let fixed = Cost::Fixed(factor("3"));
    assert_eq!(fixed.factor(|_| panic!("no value is needed")), factor("3"));
}

fn any_factor() -> impl Strategy<Value = Factor> {
    let number = || prop_oneof![0..20_u64, any::<u32>().prop_map(u64::from)];
    (number(), number()).prop_map(|(numerator, denominator)| {
        Factor::new(numerator, denominator.max(1)).expect("both fit into 32 bits")
    })
}

fn hits() -> impl Strategy<Value = i64> {
    prop_oneof![0..100_i64, 0..=MAX, (0..100_i64).prop_map(|below| MAX - below)]
}

proptest! {
    /// The least whole number of hits that is not less than the product.
    #[test]
    fn a_take_is_the_exact_product_rounded_up(factor in any_factor(), hits in hits()) {
        let weighted = factor.weigh(hits);
        let product = i128::from(hits) * i128::from(factor.numerator());
        let denominator = i128::from(factor.denominator());
        prop_assert!((0..=MAX).contains(&weighted));
        prop_assert!(weighted == MAX || i128::from(weighted) * denominator >= product);
        prop_assert!(weighted == 0 || (i128::from(weighted) - 1) * denominator < product);
    }

    /// Hits that are given back in any number of parts never exceed those that one take has paid.
    #[test]
    fn parts_never_give_back_more_than_was_taken(
        factor in any_factor(),
        parts in prop::collection::vec(0..(MAX / 8), 1..8),
    ) {
        let sum: i64 = parts.iter().sum();
        let (whole, back) = (factor.weigh(sum), factor.weigh(-sum));
        let parts_back: i128 = parts.iter().map(|part| i128::from(factor.weigh(-part))).sum();
        let parts_taken: i128 = parts.iter().map(|part| i128::from(factor.weigh(*part))).sum();
        prop_assert!((0..=1).contains(&(whole + back)), "{} taken, {} given back", whole, back);
        prop_assert!(i128::from(whole) <= parts_taken);
        if whole < MAX {
            prop_assert!(-parts_back <= i128::from(whole));
        }
    }

    #[test]
    fn more_hits_never_cost_less(factor in any_factor(), hits in hits(), more in 0..1000_i64) {
        let larger = (hits + more).min(MAX);
        prop_assert!(factor.weigh(larger) >= factor.weigh(hits));
        prop_assert!(factor.weigh(-larger) <= factor.weigh(-hits));
    }

    #[test]
    fn a_factor_is_read_from_its_text(factor in any_factor()) {
        prop_assert_eq!(factor.to_string().parse(), Ok(factor));
    }

    #[test]
    fn any_text_is_a_factor_or_an_error(text in "\\PC{0,20}|[-0-9./ ]{0,24}") {
        if let Ok(factor) = text.parse::<Factor>() {
            prop_assert_eq!(factor.to_string().parse(), Ok(factor));
        }
    }
}
