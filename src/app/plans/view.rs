//! What the admin port and the metrics read of plans.

use std::sync::Arc;

use crate::plan_sources::{RedisPlans, SourceStatus};
use crate::plans::Plans;

/// The active plans, and the health of their source.
#[derive(Clone)]
pub(in crate::app) struct PlansView {
    pub(in crate::app) plans: Arc<Plans>,
    pub(in crate::app) status: Arc<SourceStatus>,
    /// `None` with another source.
    pub(in crate::app) redis: Option<Arc<RedisPlans>>,
}
