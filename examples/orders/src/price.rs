//! The prices themselves: sums, discounts, delivery and tax, in whole cents.
//!
//! Every sum is checked: an overflow is the error `too-large`, never a wrong invoice.

use crate::bindings::exports::wasmrun::orders::pricing::{
    BadItem, Care, Delivery, Discount, Invoice, Item, Order, OrderError, Rule, Sale,
};

/// 100 % as a rate.
const WHOLE: u32 = 10_000;

/// A step of pricing that can fail.
type Priced<T> = Result<T, OrderError>;

/// Prices an order.
pub fn price(order: &Order, rules: &[Rule]) -> Priced<Invoice> {
    if order.items.is_empty() {
        return Err(OrderError::Empty);
    }
    check_coupon(order, rules)?;
    let mut subtotal = 0;
    for (index, item) in (0..).zip(&order.items) {
        check_item(item).map_err(|reason| {
            OrderError::BadItem(BadItem {
                index,
                reason: reason.to_owned(),
            })
        })?;
        subtotal = add(subtotal, times(item.unit_price, u64::from(item.quantity))?)?;
    }

    // No discount takes more than is left to pay.
    let mut left = subtotal;
    let mut discounts = Vec::new();
    for rule in rules {
        if let Some(mut discount) = discount(order, rule, left)? {
            discount.amount = discount.amount.min(left);
            left -= discount.amount;
            discounts.push(discount);
        }
    }

    let delivery = delivery(order, rules, left)?;
    let before_tax = add(left, delivery)?;
    let tax_rate = rules.iter().rev().find_map(|rule| match rule {
        Rule::Tax(rate) => Some(*rate),
        _ => None,
    });
    let tax = share(before_tax, tax_rate.unwrap_or(0))?;
    Ok(Invoice {
        order_id: order.id.clone(),
        currency: order.currency,
        subtotal,
        discounts,
        delivery,
        tax,
        total: add(before_tax, tax)?,
    })
}

fn check_item(item: &Item) -> Result<(), &'static str> {
    match item {
        Item { sku, .. } if sku.trim().is_empty() => Err("it has no sku"),
        Item { quantity: 0, .. } => Err("its quantity is 0"),
        Item {
            weight: Some(0), ..
        } => Err("its weight is 0; leave it out for what has none"),
        _ => Ok(()),
    }
}

fn check_coupon(order: &Order, rules: &[Rule]) -> Priced<()> {
    let Some(code) = &order.coupon else {
        return Ok(());
    };
    let is_known = rules
        .iter()
        .any(|rule| matches!(rule, Rule::Coupon((known, _)) if known == code));
    if is_known {
        Ok(())
    } else {
        Err(OrderError::UnknownCoupon(code.clone()))
    }
}

/// What a rule takes off an order of which so much is `left` to pay.
fn discount(order: &Order, rule: &Rule, left: u64) -> Priced<Option<Discount>> {
    let discount = match rule {
        Rule::Sale(sale) if applies(sale, order, left) => Discount {
            name: sale.name.clone(),
            amount: share(left, sale.off.min(WHOLE))?,
        },
        Rule::OneFree((sku, every)) if *every > 0 => {
            let mut amount = 0;
            for item in order.items.iter().filter(|item| item.sku == *sku) {
                let free = u64::from(item.quantity / every);
                amount = add(amount, times(item.unit_price, free)?)?;
            }
            Discount {
                name: format!("one {sku} free for every {every}"),
                amount,
            }
        }
        Rule::Coupon((code, amount)) if order.coupon.as_ref() == Some(code) => Discount {
            name: format!("coupon {code}"),
            amount: *amount,
        },
        Rule::Sale(_)
        | Rule::OneFree(_)
        | Rule::Coupon(_)
        | Rule::FreeDelivery(_)
        | Rule::Tax(_) => return Ok(None),
    };
    Ok((discount.amount > 0).then_some(discount))
}

fn applies(sale: &Sale, order: &Order, left: u64) -> bool {
    left >= sale.at_least && sale.only_for.is_none_or(|tier| tier == order.tier)
}

fn delivery(order: &Order, rules: &[Rule], left: u64) -> Priced<u64> {
    let base = match &order.delivery {
        Delivery::Pickup => return Ok(0),
        Delivery::Parcel(country) => {
            let is_free = rules
                .iter()
                .any(|rule| matches!(rule, Rule::FreeDelivery(from) if left >= *from));
            if is_free {
                return Ok(0);
            }
            parcel(country, grams(&order.items)?)?
        }
        Delivery::Courier(hours @ 2..=48) => add(900, times(150, u64::from(48 - hours))?)?,
        Delivery::Courier(hours) => {
            let reason = format!("a courier takes 2 to 48 hours, not {hours}");
            return Err(OrderError::CannotDeliver(reason));
        }
    };
    let extras = [
        (Care::FRAGILE, 250),
        (Care::COLD, 700),
        (Care::OVERSIZED, 1900),
    ];
    let extra: u64 = (extras.iter())
        .filter(|(care, _)| order.care.contains(*care))
        .map(|(_, cents)| cents)
        .sum();
    add(base, extra)
}

/// So much to send, and so much more for each kilogram begun.
fn parcel(country: &str, grams: u64) -> Priced<u64> {
    let (base, per_kilogram) = match country {
        "DE" | "FR" | "NL" => (390, 60),
        "AT" | "CH" | "GB" | "IT" | "ES" => (890, 140),
        "US" | "CA" => (1_990, 900),
        other => {
            let reason = format!("no parcels to `{other}`");
            return Err(OrderError::CannotDeliver(reason));
        }
    };
    add(base, times(per_kilogram, grams.div_ceil(1_000))?)
}

fn grams(items: &[Item]) -> Priced<u64> {
    let mut grams = 0;
    for item in items {
        let each = u64::from(item.weight.unwrap_or(0));
        grams = add(grams, times(each, u64::from(item.quantity))?)?;
    }
    Ok(grams)
}

/// A share of an amount, to the nearest cent, halves up.
fn share(amount: u64, rate: u32) -> Priced<u64> {
    let exact = u128::from(amount) * u128::from(rate);
    let rounded = (exact + u128::from(WHOLE / 2)) / u128::from(WHOLE);
    rounded.try_into().map_err(|_| OrderError::TooLarge)
}

fn add(a: u64, b: u64) -> Priced<u64> {
    a.checked_add(b).ok_or(OrderError::TooLarge)
}

fn times(a: u64, b: u64) -> Priced<u64> {
    a.checked_mul(b).ok_or(OrderError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::exports::wasmrun::orders::pricing::{Currency, Tier};

    fn item(sku: &str, quantity: u32, unit_price: u64, weight: Option<u32>) -> Item {
        Item {
            sku: sku.to_owned(),
            quantity,
            unit_price,
            weight,
        }
    }

    fn order() -> Order {
        Order {
            id: "A-17".to_owned(),
            currency: Currency::Eur,
            tier: Tier::Member,
            items: vec![
                item("mug", 3, 1_250, Some(400)),
                item("licence", 1, 4_999, None),
            ],
            care: Care::FRAGILE,
            delivery: Delivery::Parcel("DE".to_owned()),
            coupon: None,
        }
    }

    fn sale(off: u32, only_for: Option<Tier>, at_least: u64) -> Rule {
        Rule::Sale(Sale {
            name: "sale".to_owned(),
            off,
            only_for,
            at_least,
        })
    }

    #[test]
    fn an_order_without_rules_costs_its_items_and_delivery() {
        let invoice = price(&order(), &[]).unwrap();
        assert_eq!(invoice.subtotal, 3 * 1_250 + 4_999);
        // 1.2 kg are two kilograms begun, and it is fragile.
        assert_eq!(invoice.delivery, 390 + 2 * 60 + 250);
        assert_eq!(invoice.total, invoice.subtotal + invoice.delivery);
        assert!(invoice.discounts.is_empty());
    }

    #[test]
    fn rules_apply_in_order_and_say_so() {
        let rules = [
            Rule::OneFree(("mug".to_owned(), 3)),
            sale(1_000, Some(Tier::Member), 5_000),
            sale(9_000, Some(Tier::Business), 0),
            Rule::Coupon(("HELLO".to_owned(), 500)),
            Rule::FreeDelivery(6_000),
            Rule::Tax(700),
            Rule::Tax(1_900),
        ];
        let order = Order {
            coupon: Some("HELLO".to_owned()),
            ..order()
        };
        let invoice = price(&order, &rules).unwrap();
        let taken: Vec<u64> = invoice
            .discounts
            .iter()
            .map(|discount| discount.amount)
            .collect();
        assert_eq!(taken, [1_250, 750, 500]);
        assert_eq!(invoice.delivery, 0);
        assert_eq!(invoice.tax, 1_187);
        assert_eq!(invoice.total, 8_749 - 2_500 + 1_187);
    }

    #[test]
    fn nothing_costs_less_than_nothing() {
        let order = Order {
            coupon: Some("ALL".to_owned()),
            delivery: Delivery::Pickup,
            ..order()
        };
        let rules = [
            sale(20_000, None, 0),
            Rule::Coupon(("ALL".to_owned(), u64::MAX)),
        ];
        assert_eq!(price(&order, &rules).unwrap().total, 0);
    }

    #[test]
    fn what_cannot_be_priced_says_why() {
        let bad = |change: &dyn Fn(&mut Order)| {
            let mut order = order();
            change(&mut order);
            price(&order, &[Rule::Tax(u32::MAX)]).unwrap_err()
        };
        assert!(matches!(
            bad(&|order| order.items.clear()),
            OrderError::Empty
        ));
        assert!(matches!(
            bad(&|order| order.items[1].quantity = 0),
            OrderError::BadItem(BadItem { index: 1, reason }) if reason == "its quantity is 0"
        ));
        assert!(matches!(
            bad(&|order| order.coupon = Some("X".to_owned())),
            OrderError::UnknownCoupon(code) if code == "X"
        ));
        assert!(matches!(
            bad(&|order| order.delivery = Delivery::Courier(1)),
            OrderError::CannotDeliver(reason) if reason.contains("not 1")
        ));
        assert!(matches!(
            bad(&|order| order.items[0].unit_price = u64::MAX),
            OrderError::TooLarge
        ));
        assert!(matches!(
            bad(&|order| order.items[0].unit_price = u64::MAX / 4),
            OrderError::TooLarge
        ));
    }

    #[test]
    fn halves_round_up() {
        assert_eq!(share(150, 100).unwrap(), 2);
        assert_eq!(share(149, 100).unwrap(), 1);
        assert_eq!(share(u64::MAX, WHOLE).unwrap(), u64::MAX);
    }
}
