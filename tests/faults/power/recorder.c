/* Preloaded into a broker: writes down, in order, what it does to the files below $RECORD_BELOW and what
   it sends over sockets, into $RECORD_INTO. With $RECORD_DIE_AT=n the process kills itself
   once n events are written, so that what was done and what was written down never part.

   An event: kind u32, fd i32, a i64, b i64, size u32, then `size` bytes; native byte order.
     O open of a path (a: flags)   C close   W write (a: position, -1: where the descriptor stands)   T size becomes a
     G size becomes a at least     B, E a sync begins, has ended (a: number of the pair)   S bytes sent
     R rename, L link "from\0to"   U unlink of a path   M mkdir of a path   D rmdir of a path
   Every call but a sync is made and written down under one lock: the order of the events is the order of effects.
   A write that syncs (O_DSYNC, RWF_DSYNC) is recorded as W, B and E, of which B and E only once the whole call is over. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS 65536
#define CALL(result, name, ...) \
    static result (*real_##name)(__VA_ARGS__); \
    static void find_##name(void) { if (!real_##name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name); }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char watched[FDS], spoken[FDS], syncing[FDS];
static const char *below;
static size_t below_size;
static int into = -1;
static int64_t pairs, events, die_at;
static __thread sigset_t mask;

struct event { uint32_t kind; int32_t fd; int64_t a, b; uint32_t size; } __attribute__((packed));

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("RECORD_INTO"), *at = getenv("RECORD_DIE_AT");
    below = getenv("RECORD_BELOW");
    if (!file || !below) return;
    below_size = strlen(below);
    die_at = at ? atoll(at) : 0;
    int opened = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    into = syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 60000);
    if (into < 0) into = opened; else syscall(SYS_close, opened);
    unsetenv("LD_PRELOAD");
}

static void note(uint32_t kind, int fd, int64_t a, int64_t b, const struct iovec *data, int count, size_t size) {
    struct event event = {kind, fd, a, b, (uint32_t)size};
    char *whole = malloc(sizeof event + size), *end = whole + sizeof event;
    memcpy(whole, &event, sizeof event);
    for (int i = 0; i < count && size; i++) {
        size_t part = data[i].iov_len < size ? data[i].iov_len : size;
        memcpy(end, data[i].iov_base, part);
        end += part;
        size -= part;
    }
    for (char *start = whole; start < end;) {
        long written = syscall(SYS_write, into, start, end - start);
        if (written < 0) abort();
        start += written;
    }
    free(whole);
    if (++events == die_at) syscall(SYS_kill, getpid(), SIGKILL);
}

static void note_text(uint32_t kind, int fd, int64_t a, const char *text, size_t size) {
    struct iovec data = {(void *)text, size};
    note(kind, fd, a, 0, &data, 1, size);
}

static void note_synced(int fd) {
    int64_t pair = ++pairs;
    note('B', fd, pair, 0, NULL, 0, 0);
    note('E', fd, pair, 0, NULL, 0, 0);
}

/* No signal comes in between: Python's handler writes to a socket, and would wait for the lock its thread holds. */
static int enter(void) {
    if (into < 0) return 0;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pthread_mutex_lock(&lock);
    return 1;
}

static void leave(int entered) {
    int error = errno;
    if (entered) {
        pthread_mutex_unlock(&lock);
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
    }
    errno = error;
}

static int is_below(const char *path) {
    return !strncmp(path, below, below_size) && (path[below_size] == '/' || !path[below_size]);
}

static int is_watched(int fd) { return fd >= 0 && fd < FDS && watched[fd]; }

static int is_socket(int fd) {
    struct stat found;
    return !fstat(fd, &found) && S_ISSOCK(found.st_mode);
}

/* The absolute path of `path` seen from directory `fd`; NULL when it is not below what is watched. */
static const char *resolve(int fd, const char *path, char *into_text) {
    if (path[0] == '/') return is_below(path) ? path : NULL;
    char link[64];
    if (fd == AT_FDCWD) strcpy(link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, into_text, PATH_MAX);
    if (size < 0) return NULL;
    snprintf(into_text + size, PATH_MAX, "/%s", path);
    return is_below(into_text) ? into_text : NULL;
}

static void opened(int dir, const char *path, int flags, int fd) {
    char text[2 * PATH_MAX];
    if (fd < 0 || fd >= FDS) return;
    const char *found = resolve(dir, path, text);
    watched[fd] = found != NULL;
    syncing[fd] = (flags & O_DSYNC) != 0;
    if (found) note_text('O', fd, flags, found, strlen(found));
}

#define OPEN(name, with_dir, ...) \
    { find_##name(); int entered = enter(); int fd = real_##name(__VA_ARGS__); \
      if (entered) { int error = errno; opened(with_dir, path, flags, fd); errno = error; } leave(entered); return fd; }
#define MODE(last) mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, last); \
      mode = va_arg(rest, mode_t); va_end(rest); }

CALL(int, open, const char *, int, mode_t)
int open(const char *path, int flags, ...) { MODE(flags) OPEN(open, AT_FDCWD, path, flags, mode) }
CALL(int, open64, const char *, int, mode_t)
int open64(const char *path, int flags, ...) { MODE(flags) OPEN(open64, AT_FDCWD, path, flags, mode) }
CALL(int, openat, int, const char *, int, mode_t)
int openat(int dir, const char *path, int flags, ...) { MODE(flags) OPEN(openat, dir, dir, path, flags, mode) }
CALL(int, openat64, int, const char *, int, mode_t)
int openat64(int dir, const char *path, int flags, ...) { MODE(flags) OPEN(openat64, dir, dir, path, flags, mode) }
CALL(int, __open_2, const char *, int)
int __open_2(const char *path, int flags) { OPEN(__open_2, AT_FDCWD, path, flags) }
CALL(int, __open64_2, const char *, int)
int __open64_2(const char *path, int flags) { OPEN(__open64_2, AT_FDCWD, path, flags) }

CALL(int, close, int)
int close(int fd) {
    find_close();
    int entered = enter();
    if (entered && fd >= 0 && fd < FDS && (watched[fd] || spoken[fd])) {
        watched[fd] = spoken[fd] = 0;
        note('C', fd, 0, 0, NULL, 0, 0);
    }
    int result = real_close(fd);
    leave(entered);
    return result;
}

#define WRITE(name, vector, count, position, ...) SYNCED_WRITE(name, vector, count, position, 0, __VA_ARGS__)
#define SYNCED_WRITE(name, vector, count, position, syncs, ...) \
    { find_##name(); int entered = enter(); ssize_t done = real_##name(__VA_ARGS__); int error = errno; \
      if (entered && done > 0) { \
          if (is_watched(fd)) { \
              note('W', fd, position, 0, vector, count, done); \
              if ((syncs) || syncing[fd]) note_synced(fd); } \
          else if (position < 0 && fd < FDS && is_socket(fd)) { spoken[fd] = 1; note('S', fd, 0, 0, vector, count, done); } } \
      errno = error; leave(entered); return done; }
#define ONE struct iovec data = {(void *)buffer, size};

CALL(ssize_t, write, int, const void *, size_t)
ssize_t write(int fd, const void *buffer, size_t size) { ONE WRITE(write, &data, 1, -1, fd, buffer, size) }
CALL(ssize_t, writev, int, const struct iovec *, int)
ssize_t writev(int fd, const struct iovec *data, int count) { WRITE(writev, data, count, -1, fd, data, count) }
CALL(ssize_t, send, int, const void *, size_t, int)
ssize_t send(int fd, const void *buffer, size_t size, int flags) { ONE WRITE(send, &data, 1, -1, fd, buffer, size, flags) }
CALL(ssize_t, sendmsg, int, const struct msghdr *, int)
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
    { WRITE(sendmsg, message->msg_iov, (int)message->msg_iovlen, -1, fd, message, flags) }
CALL(ssize_t, pwrite, int, const void *, size_t, off_t)
ssize_t pwrite(int fd, const void *buffer, size_t size, off_t at) { ONE WRITE(pwrite, &data, 1, at, fd, buffer, size, at) }
CALL(ssize_t, pwrite64, int, const void *, size_t, off64_t)
ssize_t pwrite64(int fd, const void *buffer, size_t size, off64_t at)
    { ONE WRITE(pwrite64, &data, 1, at, fd, buffer, size, at) }
CALL(ssize_t, pwritev, int, const struct iovec *, int, off_t)
ssize_t pwritev(int fd, const struct iovec *data, int count, off_t at) { WRITE(pwritev, data, count, at, fd, data, count, at) }
CALL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t)
ssize_t pwritev64(int fd, const struct iovec *data, int count, off64_t at)
    { WRITE(pwritev64, data, count, at, fd, data, count, at) }

CALL(ssize_t, pwritev2, int, const struct iovec *, int, off_t, int)
ssize_t pwritev2(int fd, const struct iovec *data, int count, off_t at, int flags)
    { SYNCED_WRITE(pwritev2, data, count, at, flags & (RWF_DSYNC | RWF_SYNC), fd, data, count, at, flags) }
CALL(ssize_t, pwritev64v2, int, const struct iovec *, int, off64_t, int)
ssize_t pwritev64v2(int fd, const struct iovec *data, int count, off64_t at, int flags)
    { SYNCED_WRITE(pwritev64v2, data, count, at, flags & (RWF_DSYNC | RWF_SYNC), fd, data, count, at, flags) }

#define SIZE(name, kind, size, keeps, ...) \
    { find_##name(); int entered = enter(); int result = real_##name(__VA_ARGS__); int error = errno; \
      if (entered && !result && !(keeps) && is_watched(fd)) note(kind, fd, size, 0, NULL, 0, 0); \
      errno = error; leave(entered); return result; }

CALL(int, ftruncate, int, off_t)
int ftruncate(int fd, off_t size) { SIZE(ftruncate, 'T', size, 0, fd, size) }
CALL(int, ftruncate64, int, off64_t)
int ftruncate64(int fd, off64_t size) { SIZE(ftruncate64, 'T', size, 0, fd, size) }
CALL(int, fallocate, int, int, off_t, off_t)
int fallocate(int fd, int mode, off_t at, off_t size) { SIZE(fallocate, 'G', at + size, mode & 1, fd, mode, at, size) }
CALL(int, fallocate64, int, int, off64_t, off64_t)
int fallocate64(int fd, int mode, off64_t at, off64_t size)
    { SIZE(fallocate64, 'G', at + size, mode & 1, fd, mode, at, size) }
CALL(int, posix_fallocate, int, off_t, off_t)
int posix_fallocate(int fd, off_t at, off_t size) { SIZE(posix_fallocate, 'G', at + size, 0, fd, at, size) }
CALL(int, posix_fallocate64, int, off64_t, off64_t)
int posix_fallocate64(int fd, off64_t at, off64_t size) { SIZE(posix_fallocate64, 'G', at + size, 0, fd, at, size) }

#define SYNC(name) \
    { find_##name(); int64_t pair = 0; int entered = enter(); int seen = entered && is_watched(fd); \
      if (seen) { pair = ++pairs; note('B', fd, pair, 0, NULL, 0, 0); } leave(entered); \
      int result = real_##name(fd); \
      entered = seen && !result && enter(); if (entered) note('E', fd, pair, 0, NULL, 0, 0); leave(entered); return result; }

CALL(int, fsync, int)
int fsync(int fd) SYNC(fsync)
CALL(int, fdatasync, int)
int fdatasync(int fd) SYNC(fdatasync)

#define NAME(name, kind, dir, ...) \
    { find_##name(); char text[2 * PATH_MAX]; int entered = enter(); \
      const char *found = entered ? resolve(dir, path, text) : NULL; \
      int result = real_##name(__VA_ARGS__); int error = errno; \
      if (found && !result) note_text(kind, -1, 0, found, strlen(found)); \
      errno = error; leave(entered); return result; }

CALL(int, unlink, const char *)
int unlink(const char *path) { NAME(unlink, 'U', AT_FDCWD, path) }
CALL(int, rmdir, const char *)
int rmdir(const char *path) { NAME(rmdir, 'D', AT_FDCWD, path) }
CALL(int, unlinkat, int, const char *, int)
int unlinkat(int dir, const char *path, int flags) { NAME(unlinkat, flags & AT_REMOVEDIR ? 'D' : 'U', dir, dir, path, flags) }
CALL(int, mkdir, const char *, mode_t)
int mkdir(const char *path, mode_t mode) { NAME(mkdir, 'M', AT_FDCWD, path, mode) }

static void renamed(uint32_t kind, const char *from, const char *to) {
    char both[2 * PATH_MAX + 1];
    if (!is_below(from) || !is_below(to)) return;
    size_t first = strlen(from) + 1, second = strlen(to);
    memcpy(both, from, first);
    memcpy(both + first, to, second);
    note_text(kind, -1, 0, both, first + second);
}

#define TWO_NAMES(name, kind, ...) \
    { find_##name(); int entered = enter(); int result = real_##name(__VA_ARGS__); int error = errno; \
      if (entered && !result) renamed(kind, from, to); \
      errno = error; leave(entered); return result; }

CALL(int, rename, const char *, const char *)
int rename(const char *from, const char *to) { TWO_NAMES(rename, 'R', from, to) }
CALL(int, link, const char *, const char *)
int link(const char *from, const char *to) { TWO_NAMES(link, 'L', from, to) }
CALL(int, linkat, int, const char *, int, const char *, int)
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
    { TWO_NAMES(linkat, 'L', from_dir, from, to_dir, to, flags) }
CALL(int, truncate, const char *, off_t)
int truncate(const char *path, off_t size) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = ftruncate(fd, size), error = errno;
    close(fd);
    errno = error;
    return result;
}
int truncate64(const char *path, off64_t size) { return truncate(path, size); }
