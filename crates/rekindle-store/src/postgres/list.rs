//! Listing sessions: one statement, every filter is part of it, every value is bound.

use rekindle_core::{Cursor, Defect, SessionInfo, SessionPage, SessionQuery, Timestamp};
use tokio_postgres::types::{ToSql, Type};

use super::Scope;
use super::connection::{Value, live, now};
use super::failure::Outcome;
use super::rows::{label, sessions, signed, unsigned, with_branches};

/// The page of sessions that `query` asks for.
pub(super) async fn list(scope: &Scope<'_>, query: &SessionQuery) -> Outcome<SessionPage> {
    let mut filter = Filter::of(scope, query);
    let total = match query.total {
        true => Some(filter.count(scope).await?),
        false => None,
    };
    if query.limit == 0 {
        return Ok(SessionPage { sessions: Vec::new(), next: None, total });
    }
    if let Some(after) = &query.after {
        let direction = if query.oldest_first { ">" } else { "<" };
        let time = filter.bind(signed(after.created_at.0), Type::INT8);
        let id = filter.bind(after.id.as_str().to_owned(), Type::TEXT);
        filter.and(&format!("(s.created_at, s.session) {direction} ({time}, {id})"));
    }
    let mut sessions = filter.sessions(scope, query).await?;
    let more = sessions.len() > query.limit;
    sessions.truncate(query.limit);
    let next = sessions.last().filter(|_| more).map(Cursor::behind);
    Ok(SessionPage { sessions, next, total })
}

/// Sessions of which all is there but their row.
pub(super) async fn headless(scope: &Scope<'_>) -> Outcome<Vec<Defect>> {
    let schema = scope.schema;
    let sql = format!(
        "SELECT count(DISTINCT b.session) FROM {schema}.branches b
         WHERE NOT EXISTS (SELECT FROM {schema}.sessions s WHERE s.id = b.session)"
    );
    let rows = scope.connection.query(&sql, &[]).await?;
    let number: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    let detail = match number {
        0 => return Ok(Vec::new()),
        1 => "the records of a session are there, its row is gone".to_owned(),
        number => format!("the records of {number} sessions are there, their rows are gone"),
    };
    let hint = "restore the table from a backup; what is left is in the tables branches and frames";
    Ok(vec![Defect { session: None, place: "table sessions".into(), detail, hint: hint.into() }])
}

/// Conditions and the values bound in them.
struct Filter {
    sql: String,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Filter {
    fn of(scope: &Scope<'_>, query: &SessionQuery) -> Self {
        let schema = scope.schema;
        // The first value is the clock's.
        let mut filter = Self { sql: String::new(), values: vec![(Box::new(scope.now), Type::INT8)] };
        let namespace = filter.bind(query.namespace.as_str().to_owned(), Type::TEXT);
        filter.sql = format!("s.namespace = {namespace}");
        if !query.statuses.is_empty() {
            let statuses: Vec<_> = query.statuses.iter().map(|status| status.as_str()).collect();
            let statuses = filter.bind(statuses, Type::TEXT_ARRAY);
            // A branch that runs without a live lease was interrupted; nothing is written then.
            let live = live("b.lease_expires", "c.now");
            filter.and(&format!(
                "(SELECT CASE WHEN b.status = 'running' AND NOT coalesce({live}, false) THEN 'interrupted'
                     ELSE b.status END FROM {schema}.branches b WHERE b.session = s.id AND b.name = s.current) = ANY({statuses})"
            ));
        }
        filter.and_header(query);
        if let Some(parent) = &query.parent {
            let id = filter.bind(parent.id.as_str().to_owned(), Type::TEXT);
            let namespace = filter.bind(parent.namespace.as_str().to_owned(), Type::TEXT);
            filter.and(&format!("s.parent_session = {id} AND s.parent_namespace = {namespace}"));
        }
        if query.top_level {
            filter.and("s.parent_session IS NULL");
        }
        let updated = format!(
            "greatest(s.created_at, (SELECT max(b.updated_at) FROM {schema}.branches b WHERE b.session = s.id))"
        );
        filter.and_time("s.created_at >=", query.created_from);
        filter.and_time("s.created_at <", query.created_before);
        filter.and_time(&format!("{updated} >="), query.updated_from);
        filter.and_time(&format!("{updated} <"), query.updated_before);
        filter
    }

    fn and_header(&mut self, query: &SessionQuery) {
        if let Some(agent) = &query.agent {
            let agent = self.bind(agent.as_bytes().to_vec(), Type::BYTEA);
            self.and(&format!("s.agent = {agent}"));
        }
        if !query.tags.is_empty() {
            let tags: Vec<_> = query.tags.iter().map(|tag| tag.as_bytes().to_vec()).collect();
            let tags = self.bind(tags, Type::BYTEA_ARRAY);
            self.and(&format!("s.tags @> {tags}"));
        }
        if !query.labels.is_empty() {
            let labels: Vec<_> = query.labels.iter().map(|(name, value)| label(name, value)).collect();
            let labels = self.bind(labels, Type::BYTEA_ARRAY);
            self.and(&format!("s.labels @> {labels}"));
        }
        if let Some(text) = &query.text {
            let text = self.bind(text.to_lowercase().into_bytes(), Type::BYTEA);
            self.and(&format!("position({text} IN s.search) > 0"));
        }
    }

    /// Binds a value; what stands for it in the statement.
    fn bind(&mut self, value: impl ToSql + Sync + Send + 'static, kind: Type) -> String {
        self.values.push((Box::new(value), kind));
        format!("${}", self.values.len())
    }

    fn and(&mut self, condition: &str) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
    }

    fn and_time(&mut self, condition: &str, time: Option<Timestamp>) {
        if let Some(time) = time {
            let time = self.bind(signed(time.0), Type::INT8);
            self.and(&format!("{condition} {time}"));
        }
    }

    fn values(&self) -> Vec<Value<'_>> {
        self.values.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect()
    }

    async fn count(&self, scope: &Scope<'_>) -> Outcome<u64> {
        let sql = format!(
            "WITH clock AS MATERIALIZED (SELECT {} AS now)
             SELECT count(*) FROM clock c CROSS JOIN {}.sessions s WHERE {}",
            now(1),
            scope.schema,
            self.sql
        );
        let rows = scope.connection.query_once(&sql, &self.values()).await?;
        rows.first().map_or(Ok(0), |row| unsigned(row, 0))
    }

    /// One session more than asked for, if there is one.
    async fn sessions(mut self, scope: &Scope<'_>, query: &SessionQuery) -> Outcome<Vec<SessionInfo>> {
        let order = if query.oldest_first { "ASC" } else { "DESC" };
        let limit = self.bind(signed(query.limit as u64 + 1), Type::INT8);
        let sql = format!(
            "WITH clock AS MATERIALIZED (SELECT {} AS now),
                 page AS MATERIALIZED (SELECT s.* FROM clock c CROSS JOIN {}.sessions s WHERE {}
                     ORDER BY s.created_at {order}, s.session {order} LIMIT {limit})
             {}",
            now(1),
            scope.schema,
            self.sql,
            with_branches(scope.schema, order)
        );
        let rows = scope.connection.query_once(&sql, &self.values()).await?;
        Ok(sessions(&rows)?.into_iter().map(|found| found.info).collect())
    }
}
