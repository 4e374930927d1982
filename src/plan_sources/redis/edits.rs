//! Changes of plans and of customers by operators. Each is one transaction, which also adds an entry to
//! the stream, so that every instance learns of it.

use serde_json::Value;

use super::book::{BOOK_BYTES_MAX, PLAN_BYTES_MAX, PLAN_OVERHEAD};
use super::changes::{PlanChange, add_command};
use super::{CUSTOMERS_KEY, PLANS_KEY, RedisPlans, plan_name};
use crate::escape::excerpt;
use crate::plans::{PLANS_MAX, PlanNumbers, check_customer_name, check_plan_name};
use crate::store::{CommandBound, RedisValue, StoreError};

/// Characters of a name that a log line shows.
const SHOWN_CHARS_MAX: usize = 200;

/// Characters of a customer's name that a log line shows.
const CUSTOMER_CHARS_MAX: usize = 4;

/// Why plans were not changed, or a customer not looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanEditError {
    /// The request cannot be carried out: the reason, and what to do.
    Invalid(String),
    /// There is no plan of this name.
    UnknownPlan(String),
    /// Redis did not carry it out, or did not say so.
    Store(StoreError),
}

impl From<StoreError> for PlanEditError {
    fn from(error: StoreError) -> PlanEditError {
        PlanEditError::Store(error)
    }
}

impl RedisPlans {
    /// Sets the numbers of a plan, `limits` by name as in a plans file. Returns whether the plan is new.
    ///
    /// # Errors
    /// An invalid name or invalid limits, more plans than there may be, or a failure of Redis, after
    /// which the plan may be set.
    pub async fn set_plan(&self, plan: &str, limits: &Value) -> Result<bool, PlanEditError> {
        check_plan_name(plan).map_err(PlanEditError::Invalid)?;
        let numbers = PlanNumbers::from_json(plan, limits).map_err(PlanEditError::Invalid)?;
        let text = numbers.to_json().to_string();
        self.check_room(plan, text.len()).await?;
        let set = [b"HSET".to_vec(), PLANS_KEY.into(), plan.into(), text.into()];
        let added = self.write(PLANS_KEY, &set, &PlanChange::Plans).await?;
        tracing::info!(plan, is_new = added, "plan set by an operator");
        Ok(added)
    }

    /// Deletes a plan. The default of a rule then decides for its customers. Returns whether there was
    /// one.
    ///
    /// # Errors
    /// A failure of Redis, after which the plan may be deleted.
    pub async fn delete_plan(&self, plan: &str) -> Result<bool, PlanEditError> {
        let delete = [b"HDEL".to_vec(), PLANS_KEY.into(), plan.into()];
        let existed = self.write(PLANS_KEY, &delete, &PlanChange::Plans).await?;
        tracing::info!(plan = %shown(plan), existed, "plan deleted by an operator");
        Ok(existed)
    }

    /// Assigns a customer to a plan, or to none. Returns whether the customer had none before; for
    /// `None`, whether there was one.
    ///
    /// # Errors
    /// An invalid name, a plan that Redis does not have, or a failure of Redis, after which the customer
    /// may be assigned.
    pub async fn assign(&self, customer: &str, plan: Option<&str>) -> Result<bool, PlanEditError> {
        let command = match plan {
            Some(plan) => {
                check_customer_name(customer).map_err(PlanEditError::Invalid)?;
                if !self.has_plan(plan).await? {
                    return Err(PlanEditError::UnknownPlan(plan.to_owned()));
                }
                vec![b"HSET".to_vec(), CUSTOMERS_KEY.into(), customer.into(), plan.into()]
            }
            None => vec![b"HDEL".to_vec(), CUSTOMERS_KEY.into(), customer.into()],
        };
        let change =
            PlanChange::Customer { customer: customer.to_owned(), plan: plan.map(str::to_owned) };
        let changed = self.write(CUSTOMERS_KEY, &command, &change).await?;
        let customer = shown_customer(customer);
        tracing::info!(%customer, plan, "customer assigned by an operator");
        Ok(changed)
    }

    /// The plan of a customer in Redis; `None` without one.
    ///
    /// # Errors
    /// A failure of Redis.
    pub async fn plan_of(&self, customer: &str) -> Result<Option<String>, PlanEditError> {
        let words = [b"HMGET".to_vec(), CUSTOMERS_KEY.into(), customer.into()];
        let reply = self.command(CUSTOMERS_KEY, &words).await?;
        let plan = reply.list().and_then(|found| found.first());
        Ok(plan.ok_or(StoreError::InvalidReply).map(plan_name)?.map(str::to_owned))
    }

    async fn has_plan(&self, plan: &str) -> Result<bool, StoreError> {
        let words = [b"HEXISTS".to_vec(), PLANS_KEY.into(), plan.into()];
        let reply = self.command(PLANS_KEY, &words).await?;
        reply.integer().map(|found| found > 0).ok_or(StoreError::InvalidReply)
    }

    /// Checks that `plan` may have `bytes`. Instances read all plans at once, within a bound.
    async fn check_room(&self, plan: &str, bytes: usize) -> Result<(), PlanEditError> {
        if bytes > PLAN_BYTES_MAX {
            return Err(PlanEditError::Invalid(format!(
                "the plan has {bytes} bytes as JSON, at most {PLAN_BYTES_MAX}; use fewer limits"
            )));
        }
        let all = self.book.bytes() + plan.len() + bytes + PLAN_OVERHEAD;
        if all > BOOK_BYTES_MAX {
            return Err(PlanEditError::Invalid(format!(
                "all plans would have {all} bytes, at most {BOOK_BYTES_MAX}; delete some"
            )));
        }
        let count = self.command(PLANS_KEY, &[b"HLEN".to_vec(), PLANS_KEY.into()]).await?;
        let count = count.integer().ok_or(StoreError::InvalidReply)?;
        let is_full = usize::try_from(count).is_ok_and(|count| count >= PLANS_MAX);
        if is_full && !self.has_plan(plan).await? {
            let text = format!("there are {count} plans, at most {PLANS_MAX}; delete some");
            return Err(PlanEditError::Invalid(text));
        }
        Ok(())
    }

    /// Runs `command` and adds `change` to the stream, both or none. Returns whether the reply to
    /// `command` is over 0.
    async fn write(
        &self,
        key: &str,
        command: &[Vec<u8>],
        change: &PlanChange,
    ) -> Result<bool, StoreError> {
        let addition = add_command(change);
        let command: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let addition: Vec<&[u8]> = addition.iter().map(Vec::as_slice).collect();
        let bound = CommandBound::small(self.timeout);
        let store = self.store.store();
        let replies = store.transaction(key, &[&command, &addition], bound).await?;
        // This instance need not wait for its interval.
        self.written.notify_one();
        let number = replies.first().and_then(RedisValue::integer);
        number.map(|changed| changed > 0).ok_or(StoreError::InvalidReply)
    }
}

/// A name of a request for the log: short, and on one line.
fn shown(name: &str) -> String {
    excerpt(name, SHOWN_CHARS_MAX)
}

/// The start of a customer's name for the log: the name may be a secret key.
fn shown_customer(name: &str) -> String {
    let start: String = name.chars().take(CUSTOMER_CHARS_MAX).collect();
    format!("{}..", shown(&start))
}
