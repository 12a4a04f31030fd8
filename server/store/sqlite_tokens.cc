// The part of the store that publication tokens need.
#include "server/store/sqlite_statement.h"
#include "server/store/sqlite_store.h"

namespace perigee {
namespace {

constexpr const char* kTakeSerials =
    "UPDATE counters SET value=value+?1 WHERE name='serial' RETURNING value";
constexpr const char* kInsertIssue =
    "INSERT INTO token_issues VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
constexpr const char* kFindIssue =
    "SELECT fingerprint, grp, token_issues.generation, rank, buffer, first, count, expiry_ns, salt "
    "FROM token_issues JOIN token_salts USING(generation) WHERE request_id=?1";

}  // namespace

const char* SqliteStore::TokenSchema() {
  return "INSERT OR IGNORE INTO counters VALUES('serial', 0);"
         "CREATE TABLE IF NOT EXISTS token_salts("
         "generation INTEGER PRIMARY KEY, salt BLOB NOT NULL) STRICT;"
         "CREATE TABLE IF NOT EXISTS token_issues(request_id BLOB PRIMARY KEY,"
         "fingerprint BLOB NOT NULL, grp BLOB NOT NULL, generation INTEGER NOT NULL,"
         "rank INTEGER NOT NULL, buffer INTEGER NOT NULL, first INTEGER NOT NULL,"
         "count INTEGER NOT NULL, expiry_ns INTEGER NOT NULL, made_s INTEGER NOT NULL) STRICT;"
         "CREATE INDEX IF NOT EXISTS token_issues_made ON token_issues(made_s);";
}

absl::Status SqliteStore::InTransaction(absl::FunctionRef<absl::Status()> work) {
  absl::Status status = Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  status = work();
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) (void)Execute("ROLLBACK");
  return status;
}

absl::StatusOr<SerialRange> SqliteStore::TakeRange(uint64_t count) {
  SqliteStatement statement(database_, kTakeSerials);
  statement.Bind(1, count);
  if (statement.Step() != SQLITE_ROW) return Failure(kTakeSerials);
  const uint64_t last = statement.Number(0);
  if (!statement.Run()) return Failure(kTakeSerials);
  return SerialRange{last - count + 1, count};
}

absl::StatusOr<OpenedGeneration> SqliteStore::OpenGeneration(const std::string& salt, int32_t ranks,
                                                             uint64_t count) {
  std::lock_guard lock(mutex_);
  OpenedGeneration opened;
  const absl::Status status = InTransaction([&]() -> absl::Status {
    const auto number = Increment("generation");
    if (!number.ok()) return number.status();
    opened.generation = Generation(*number);
    SqliteStatement keep(database_, "INSERT INTO token_salts VALUES(?1, ?2)");
    if (!keep.Bind(1, *number).Bind(2, salt).Run()) return Failure("token_salts");
    const auto all = TakeRange(static_cast<uint64_t>(ranks) * count);
    if (!all.ok()) return all.status();
    for (int32_t rank = 0; rank < ranks; ++rank) {
      opened.serials.push_back({all->first + static_cast<uint64_t>(rank) * count, count});
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return opened;
}

absl::StatusOr<SerialRange> SqliteStore::TakeSerials(uint64_t count) {
  std::lock_guard lock(mutex_);
  return TakeRange(count);
}

absl::Status SqliteStore::RecordIssue(const TokenIssue& issue, absl::Time wall,
                                      absl::Time forget_before) {
  std::lock_guard lock(mutex_);
  return InTransaction([&]() -> absl::Status {
    SqliteStatement forget(database_, "DELETE FROM token_issues WHERE made_s < ?1");
    if (!forget.Bind(1, static_cast<uint64_t>(absl::ToUnixSeconds(forget_before))).Run()) {
      return Failure("token_issues");
    }
    SqliteStatement keep(database_, kInsertIssue);
    keep.Bind(1, issue.request_id).Bind(2, issue.fingerprint).Bind(3, issue.group);
    keep.Bind(4, issue.generation.value).Bind(5, static_cast<uint64_t>(issue.rank.value));
    keep.Bind(6, issue.buffer.value).Bind(7, issue.serials.first).Bind(8, issue.serials.count);
    keep.Bind(9, static_cast<uint64_t>(absl::ToInt64Nanoseconds(issue.expiry)));
    keep.Bind(10, static_cast<uint64_t>(absl::ToUnixSeconds(wall)));
    if (keep.Run()) return absl::OkStatus();
    if ((sqlite3_errcode(database_) & 0xff) == SQLITE_CONSTRAINT) {
      return absl::AlreadyExistsError("tokens were issued under this request_id before");
    }
    return Failure(kInsertIssue);
  });
}

absl::StatusOr<absl::optional<StoredIssue>> SqliteStore::FindIssue(const std::string& request_id) {
  std::lock_guard lock(mutex_);
  SqliteStatement find(database_, kFindIssue);
  const int result = find.Bind(1, request_id).Step();
  if (result == SQLITE_DONE) return absl::optional<StoredIssue>();
  if (result != SQLITE_ROW) return Failure(kFindIssue);
  StoredIssue stored;
  TokenIssue& issue = stored.issue;
  issue.request_id = request_id;
  issue.fingerprint = find.Bytes(0);
  issue.group = find.Bytes(1);
  issue.generation = Generation(find.Number(2));
  issue.rank = RankId(static_cast<int32_t>(find.Number(3)));
  issue.buffer = BufferId(find.Number(4));
  issue.serials = {find.Number(5), find.Number(6)};
  issue.expiry = absl::Nanoseconds(static_cast<int64_t>(find.Number(7)));
  stored.salt = find.Bytes(8);
  return absl::make_optional(std::move(stored));
}

}  // namespace perigee
