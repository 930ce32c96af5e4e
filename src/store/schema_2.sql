-- Format 2 of Flux's database: deletion as a mark, and the counts that a page of the history would make anew each time.
-- Tables, views and triggers of this file are also made beside a format-1 database that cannot be written.

-- The last mark counts: a deleted session is listed nowhere, nothing of it is erased, and it can be restored.
CREATE TABLE session_marks (
  id      INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (id),
  at      INTEGER NOT NULL,
  deleted INTEGER NOT NULL CHECK (deleted IN (0, 1))
) STRICT;
CREATE INDEX session_marks_by_session ON session_marks (session, deleted);
CREATE TRIGGER session_marks_stay BEFORE UPDATE ON session_marks BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE VIEW deleted_sessions AS
SELECT session FROM (SELECT session, deleted, max(id) FROM session_marks GROUP BY session) WHERE deleted;

-- Runs and samples of a session, counted as they come: no evidence, the one table whose rows change.
CREATE TABLE session_totals (
  session INTEGER PRIMARY KEY REFERENCES sessions (id),
  runs    INTEGER NOT NULL,
  samples INTEGER NOT NULL
) STRICT;
INSERT INTO session_totals
SELECT s.id, (SELECT count(*) FROM runs WHERE session = s.id),
       (SELECT count(*) FROM runs r JOIN samples p ON p.run = r.id WHERE r.session = s.id)
FROM sessions s;
CREATE TRIGGER session_totals_begin AFTER INSERT ON sessions BEGIN
  INSERT INTO session_totals VALUES (NEW.id, 0, 0);
END;
CREATE TRIGGER session_totals_count_runs AFTER INSERT ON runs BEGIN
  UPDATE session_totals SET runs = runs + 1 WHERE session = NEW.session;
END;
CREATE TRIGGER session_totals_count_samples AFTER INSERT ON samples BEGIN
  UPDATE session_totals SET samples = samples + 1 WHERE session = (SELECT session FROM runs WHERE id = NEW.run);
END;

-- All that the history filters by, without the long documents of a session's row.
CREATE INDEX sessions_in_brief ON sessions (id, kind, started_at, fingerprint, runtime, model, goal);
CREATE INDEX profiles_by_session ON profiles (session);
