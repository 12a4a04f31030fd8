#include "server/store/sqlite_store.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/sqlite_statement.h"

namespace perigee {
namespace {

constexpr const char* kFileName = "perigee.sqlite3";
constexpr int kApplicationId = 0x50455247;  // "PERG", in the file's header
constexpr int kSchemaVersion = 2;           // 2: publication tokens
constexpr int kBusyTimeoutMs = 500;

absl::Status DirectoryError(const std::string& directory, int error) {
  const std::string message =
      absl::StrCat("data directory ", directory, " cannot be used: ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    default:
      return absl::FailedPreconditionError(message);
  }
}

absl::Status MakeDirectory(const std::string& directory) {
  if (directory.empty()) return absl::InvalidArgumentError("no data directory was given");
  if (mkdir(directory.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno != EEXIST) return DirectoryError(directory, errno);
  struct stat info;
  if (stat(directory.c_str(), &info) != 0) return DirectoryError(directory, errno);
  if (!S_ISDIR(info.st_mode)) return DirectoryError(directory, ENOTDIR);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& directory) {
  const absl::Status made = MakeDirectory(directory);
  if (!made.ok()) return made;
  const std::string path = absl::StrCat(directory, "/", kFileName);
  sqlite3* database = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
  const int result = sqlite3_open_v2(path.c_str(), &database, flags, nullptr);
  if (database == nullptr) return absl::ResourceExhaustedError("out of memory for the database");
  std::unique_ptr<SqliteStore> store(new SqliteStore(database, path));
  if (result != SQLITE_OK) return store->Failure("open");
  const absl::Status prepared = store->Prepare();
  if (!prepared.ok()) return prepared;
  return store;
}

SqliteStore::~SqliteStore() { sqlite3_close(database_); }

absl::StatusOr<uint64_t> SqliteStore::TakeBufferId() {
  std::lock_guard lock(mutex_);
  return Increment("buffer");
}

absl::Status SqliteStore::Prepare() {
  sqlite3_extended_result_codes(database_, 1);
  sqlite3_busy_timeout(database_, kBusyTimeoutMs);
  // EXCLUSIVE before WAL: the lock is then held as long as the process has the file, and no second
  // coordinator can count on the same counters.
  for (const char* pragma : {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL",
                             "PRAGMA synchronous=FULL", "BEGIN IMMEDIATE; COMMIT"}) {
    const absl::Status done = Execute(pragma);
    if (!done.ok()) return done;
  }
  const auto application = QueryNumber("PRAGMA application_id");
  if (!application.ok()) return application.status();
  const auto version = QueryNumber("PRAGMA user_version");
  if (!version.ok()) return version.status();
  const auto damaged =
      QueryNumber("SELECT count(*) FROM pragma_quick_check WHERE quick_check!='ok'");
  if (!damaged.ok()) return damaged.status();
  const bool is_new = *application == 0 && *version == 0;
  if (*damaged != 0 || (!is_new && *application != kApplicationId)) {
    return absl::DataLossError(
        absl::StrCat(path_, " is damaged or not a database of this program"));
  }
  if (*version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, " has schema version ", *version, ", this program knows up to ", kSchemaVersion));
  }
  const std::string schema = absl::StrCat(
      "BEGIN IMMEDIATE;"
      "CREATE TABLE IF NOT EXISTS counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;"
      "INSERT OR IGNORE INTO counters VALUES('term', 0), ('generation', 0), ('buffer', 0);",
      TokenSchema(), "PRAGMA application_id=", kApplicationId,
      ";PRAGMA user_version=", kSchemaVersion, ";COMMIT");
  const absl::Status created = Execute(schema.c_str());
  if (!created.ok()) return created;
  auto term = Increment("term");
  if (!term.ok()) return term.status();
  term_ = *term;
  return absl::OkStatus();
}

absl::Status SqliteStore::Execute(const char* sql) {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return Failure(sql);
}

absl::StatusOr<int64_t> SqliteStore::QueryNumber(const char* sql) {
  SqliteStatement statement(database_, sql);
  if (statement.Step() != SQLITE_ROW) return Failure(sql);
  const auto value = static_cast<int64_t>(statement.Number(0));
  if (!statement.Run()) return Failure(sql);
  return value;
}

absl::StatusOr<uint64_t> SqliteStore::Increment(const char* counter) {
  const std::string sql =
      absl::StrCat("UPDATE counters SET value=value+1 WHERE name='", counter, "' RETURNING value");
  auto value = QueryNumber(sql.c_str());
  if (!value.ok()) return value.status();
  return static_cast<uint64_t>(*value);
}

absl::Status SqliteStore::Failure(const char* doing) const {
  const int code = sqlite3_errcode(database_) & 0xff;
  const std::string message =
      absl::StrCat(path_, ": ", sqlite3_errmsg(database_), " (", doing, ")");
  switch (code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(
          absl::StrCat(path_, " is in use by another process: one coordinator per data directory"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:
    case SQLITE_DONE:
      return absl::DataLossError(message);
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace perigee
