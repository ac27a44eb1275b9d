// Preloaded library that makes one file-system call of a program fail, be cut short, be slow or be its last.
//
//   LD_PRELOAD=libquench_fault_shim.so QUENCH_FAULT="do=ENOSPC;at=12" program ...
//
// Keys of QUENCH_FAULT, separated by ';':
//   do=ACTION    kill (SIGKILL instead of the call), stop (SIGTERM to the process, then the call), tear (half of a
//   write,
//                then SIGKILL), short (half of a write), delay (see ms), none, or an errno: EACCES EBUSY EDQUOT EEXIST
//                EINTR EINVAL EIO ENOSPC ENOSYS EOPNOTSUPP EROFS EXDEV
//   at=N         the N-th counted call (from 1); without it, every counted call
//   sticky       that call and all after it
//   ops=A,B      count only these: create open mkdir write fsync fallocate truncate close rename exchange unlink flock
//                stat, parallel, the start of a parallel loop of OpenMP, which has no path, and list, an entry of a
//                folder, which an errno leaves out; without it, all but these three
//   path=TEXT    count only calls on paths that contain TEXT
//   ms=N         length of a delay
//   wait         count nothing before the program calls quench_fault_arm()
// QUENCH_FAULT_COUNT=FILE writes the number of counted calls when the program ends.
// QUENCH_FAULT_TRACE=FILE logs each counted call that is carried out, in the format that tests/fault/trace.h reads.
//
// Descriptors that were not opened through this library (standard streams, sockets) are never touched.

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "tests/fault/fault_spec.h"

namespace {

using namespace quench::fault;

Fault fault;
std::atomic<long> calls{0};

constexpr int kMaxFiles = 4096;
constexpr int kMaxPath = 512;
std::mutex table_mutex;
char table[kMaxFiles][kMaxPath];  // paths of the descriptors opened here; empty: not ours

template <class Function>
Function* next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(function) next(&::function, #function)

__attribute__((constructor)) void configure() {
  if (const char* trace = getenv("QUENCH_FAULT_TRACE"))
    fault.trace = NEXT(open)(trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (const char* spec = getenv("QUENCH_FAULT")) parse_fault(fault, spec);
}

__attribute__((destructor)) void write_count() {
  const char* name = getenv("QUENCH_FAULT_COUNT");
  if (name == nullptr) return;
  const int file = NEXT(open)(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0 || dprintf(file, "%ld\n", calls.load()) < 0) abort();
}

struct Path {
  char text[kMaxPath];
};

// The path after a descriptor opened here; empty otherwise.
Path path_of(int file) {
  Path path{};
  if (file >= 0 && file < kMaxFiles) {
    const std::lock_guard lock(table_mutex);
    memcpy(path.text, table[file], sizeof path.text);
  }
  return path;
}

void remember(int file, const char* path) {
  if (file < 0 || file >= kMaxFiles) return;
  const std::lock_guard lock(table_mutex);
  snprintf(table[file], kMaxPath, "%s", path);
}

// Absolute form of a path relative to a directory descriptor.
Path resolve(int directory, const char* path) {
  Path result{};
  if (path[0] == '/') {
    snprintf(result.text, kMaxPath, "%s", path);
    return result;
  }
  char base[kMaxPath] = {};
  if (directory == AT_FDCWD) {
    if (getcwd(base, sizeof base) == nullptr) base[0] = '\0';
  } else {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    const ssize_t length = readlink(link, base, sizeof base - 1);
    if (length < 0) base[0] = '\0';
  }
  snprintf(result.text, kMaxPath, "%.255s/%.255s", base, path);
  return result;
}

// Action in place of this call: none, fail (errno is set), cut or tear. Kills and delays happen here.
Action decide(Op op, const char* path) {
  if (!fault.armed || (path[0] == '\0' && op != kParallel) || (fault.ops >> op & 1u) == 0) return Action::none;
  if (fault.path[0] != '\0' && strstr(path, fault.path) == nullptr) return Action::none;
  const long number = ++calls;
  if (fault.action == Action::none) return Action::none;
  if (fault.at != 0 && (fault.sticky ? number < fault.at : number != fault.at)) return Action::none;
  switch (fault.action) {
    case Action::tear:
      if (op == kWrite) return Action::tear;
      [[fallthrough]];
    case Action::kill: kill(getpid(), SIGKILL); break;
    case Action::stop: kill(getpid(), SIGTERM); return Action::none;
    case Action::delay: {
      const timespec time{fault.milliseconds / 1000, fault.milliseconds % 1000 * 1'000'000};
      nanosleep(&time, nullptr);
      return Action::none;
    }
    case Action::fail: errno = fault.error; return Action::fail;
    case Action::cut: return op == kWrite ? Action::cut : Action::none;
    case Action::none: break;
  }
  return Action::none;
}

void trace(const char* line, const void* payload = nullptr, size_t size = 0) {
  if (fault.trace < 0 || !fault.armed) return;
  const int saved = errno;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto out = NEXT(write);
  if (out(fault.trace, line, strlen(line)) < 0 || (size > 0 && out(fault.trace, payload, size) < 0)) abort();
  errno = saved;
}

template <class... Values>
void trace_line(const char* format, Values... values) {
  char line[2 * kMaxPath + 64];
  snprintf(line, sizeof line, format, values...);
  trace(line);
}

template <class Call>
int open_file(int directory, const char* name, int flags, const Call& call) {
  const Path path = resolve(directory, name);
  const bool creates = (flags & O_CREAT) != 0;
  if (decide(creates ? kCreate : kOpen, path.text) == Action::fail) return -1;
  const int file = call();
  if (file < 0) return file;
  remember(file, path.text);
  if (creates) trace_line("create %s\n", path.text);
  return file;
}

template <class Call>
int rename_path(Op op, const Path& from, const Path& to, const Call& call) {
  if (decide(op, from.text) == Action::fail) return -1;
  const int result = call();
  if (result == 0) trace_line("%s %s\t%s\n", kOpNames[op], from.text, to.text);
  return result;
}

template <class Call>
int remove_path(const Path& path, const Call& call) {
  if (decide(kUnlink, path.text) == Action::fail) return -1;
  const int result = call();
  if (result == 0) trace_line("unlink %s\n", path.text);
  return result;
}

template <class Call>
ssize_t write_bytes(int file, const void* bytes, size_t size, off_t offset, const Call& call) {
  const Path path = path_of(file);
  const Action action = decide(kWrite, path.text);
  if (action == Action::fail) return -1;
  if ((action == Action::cut || action == Action::tear) && size > 1) size /= 2;
  const ssize_t done = call(size);
  if (action == Action::tear) kill(getpid(), SIGKILL);
  if (done > 0 && path.text[0] != '\0' && fault.trace >= 0) {
    char line[kMaxPath + 64];
    snprintf(line, sizeof line, "write %lld %lld %s\n", static_cast<long long>(offset), static_cast<long long>(done),
             path.text);
    trace(line, bytes, static_cast<size_t>(done));
  }
  return done;
}

mode_t mode_argument(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

void GOMP_parallel(void (*work)(void*), void* data, unsigned threads, unsigned flags) {
  (void)decide(kParallel, "");
  using Parallel = void(void (*)(void*), void*, unsigned, unsigned);
  static auto* const next = reinterpret_cast<Parallel*>(dlsym(RTLD_NEXT, "GOMP_parallel"));
  next(work, data, threads, flags);
}

void quench_fault_arm() {
  fault.armed = true;
}
void quench_fault_disarm() {
  fault.armed = false;
}
long quench_fault_calls() {
  return calls;
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_file(AT_FDCWD, path, flags, [&] { return NEXT(open)(path, flags, mode); });
}

int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_file(directory, path, flags, [&] { return NEXT(openat)(directory, path, flags, mode); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  const Path full = resolve(AT_FDCWD, path);
  if (decide(kMkdir, full.text) == Action::fail) return -1;
  const int result = NEXT(mkdir)(path, mode);
  if (result == 0) trace_line("mkdir %s\n", full.text);
  return result;
}

ssize_t write(int file, const void* bytes, size_t size) {
  const off_t offset = fault.trace >= 0 ? lseek(file, 0, SEEK_CUR) : 0;
  return write_bytes(file, bytes, size, offset, [&](size_t part) { return NEXT(write)(file, bytes, part); });
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  return write_bytes(file, bytes, size, offset, [&](size_t part) { return NEXT(pwrite)(file, bytes, part, offset); });
}

int fsync(int file) {
  const Path path = path_of(file);
  if (decide(kFsync, path.text) == Action::fail) return -1;
  const int result = NEXT(fsync)(file);
  if (result == 0 && path.text[0] != '\0') trace_line("fsync %s\n", path.text);
  return result;
}

int ftruncate(int file, off_t size) noexcept {
  const Path path = path_of(file);
  if (decide(kTruncate, path.text) == Action::fail) return -1;
  const int result = NEXT(ftruncate)(file, size);
  if (result == 0 && path.text[0] != '\0') trace_line("truncate %lld %s\n", static_cast<long long>(size), path.text);
  return result;
}

int posix_fallocate(int file, off_t offset, off_t size) {
  const Path path = path_of(file);
  if (decide(kFallocate, path.text) == Action::fail) return errno;
  const int result = NEXT(posix_fallocate)(file, offset, size);
  if (result == 0 && path.text[0] != '\0')
    trace_line("extend %lld %s\n", static_cast<long long>(offset + size), path.text);
  return result;
}

int close(int file) {
  const Path path = path_of(file);
  const Action action = decide(kClose, path.text);
  const int error = errno;
  remember(file, "");
  const int result = NEXT(close)(file);  // Linux closes even when it reports an error
  if (action != Action::fail) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  return rename_path(kRename, resolve(AT_FDCWD, from), resolve(AT_FDCWD, to), [&] { return NEXT(rename)(from, to); });
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) noexcept {
  return rename_path((flags & RENAME_EXCHANGE) != 0 ? kExchange : kRename, resolve(from_directory, from),
                     resolve(to_directory, to),
                     [&] { return NEXT(renameat2)(from_directory, from, to_directory, to, flags); });
}

int unlink(const char* path) noexcept {
  return remove_path(resolve(AT_FDCWD, path), [&] { return NEXT(unlink)(path); });
}

int remove(const char* path) noexcept {
  return remove_path(resolve(AT_FDCWD, path), [&] { return NEXT(remove)(path); });
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  return remove_path(resolve(directory, path), [&] { return NEXT(unlinkat)(directory, path, flags); });
}

int rmdir(const char* path) noexcept {
  return remove_path(resolve(AT_FDCWD, path), [&] { return NEXT(rmdir)(path); });
}

int stat(const char* path, struct stat* out) noexcept {
  if (decide(kStat, resolve(AT_FDCWD, path).text) == Action::fail) return -1;
  return NEXT(stat)(path, out);
}

int lstat(const char* path, struct stat* out) noexcept {
  if (decide(kStat, resolve(AT_FDCWD, path).text) == Action::fail) return -1;
  return NEXT(lstat)(path, out);
}

int fstatat(int directory, const char* path, struct stat* out, int flags) noexcept {
  if (decide(kStat, resolve(directory, path).text) == Action::fail) return -1;
  return NEXT(fstatat)(directory, path, out, flags);
}

dirent* readdir(DIR* directory) {
  const int before = errno;
  while (true) {
    dirent* entry = NEXT(readdir)(directory);
    if (entry == nullptr || decide(kList, resolve(dirfd(directory), entry->d_name).text) != Action::fail) return entry;
    errno = before;
  }
}

int flock(int file, int operation) noexcept {
  if (decide(kFlock, path_of(file).text) == Action::fail) return -1;
  return NEXT(flock)(file, operation);
}

// On 64-bit Linux off_t is 64 bits wide in both sets of names.
int open64(const char*, int, ...) __attribute__((alias("open")));
int openat64(int, const char*, int, ...) __attribute__((alias("openat")));
ssize_t pwrite64(int, const void*, size_t, off_t) __attribute__((alias("pwrite")));
int ftruncate64(int, off_t) noexcept __attribute__((alias("ftruncate")));
int posix_fallocate64(int, off_t, off_t) __attribute__((alias("posix_fallocate")));
int stat64(const char*, struct stat64*) noexcept __attribute__((alias("stat")));
int lstat64(const char*, struct stat64*) noexcept __attribute__((alias("lstat")));
struct dirent64* readdir64(DIR*) __attribute__((alias("readdir")));
int fstatat64(int, const char*, struct stat64*, int) noexcept __attribute__((alias("fstatat")));

}  // extern "C"
