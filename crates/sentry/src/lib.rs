//! tidegate-sentry
