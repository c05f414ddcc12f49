/* Between programs and their files: notes what is written and flushed, denies writes, and moves the clock.
 *
 * Loaded before the C library (LD_PRELOAD). CHAOS_WATCH is part of the path of every file that is watched,
 * CHAOS_LOG the file of notes, CHAOS_CONTROL the file that says what to do now (struct control).
 * A note is written before the write that it tells of, with the bytes that were there: whoever reads the
 * notes can take back what was never flushed. See powerloss.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control { /* also in powerloss.py */
    volatile int64_t clock_ns; /* what the wall clock is ahead of the true one */
    volatile int32_t deny;     /* ENOSPC: files do not grow. EROFS: nothing is written or made. */
    volatile int32_t fatal;    /* whoever flushes a watched file is killed instead */
};

struct note { /* also in powerloss.py; the old bytes follow, then the new ones */
    uint64_t magic;
    uint32_t kind;
    uint32_t zeros; /* the new bytes are all zero, and left out */
    uint64_t file;
    int64_t offset; /* flushed: everything noted before this place in the notes is */
    int64_t size;   /* of the file, before */
    int64_t n_old, n_new;
};
enum { WRITTEN = 1, FLUSHED = 2, CUT = 3, GONE = 4 };
#define MAGIC 0x6c6c65742e736b64ULL

static struct control none, *control = &none;
static const char *watched;
static int notes = -1;

#define REAL(name) ((__typeof__(&name))real(#name, &name##_found))
#define FIND(name) static void *name##_found
FIND(pwrite); FIND(pwritev); FIND(write); FIND(writev); FIND(ftruncate); FIND(fsync); FIND(fdatasync);
FIND(open); FIND(openat); FIND(unlink); FIND(unlinkat); FIND(rename); FIND(clock_gettime); FIND(gettimeofday);
FIND(posix_fallocate);

static void *real(const char *name, void **found) {
    if (!*found) *found = dlsym(RTLD_NEXT, name);
    return *found;
}

__attribute__((constructor)) static void begin(void) {
    const char *place = getenv("CHAOS_CONTROL"), *log = getenv("CHAOS_LOG");
    watched = getenv("CHAOS_WATCH");
    int file = place ? REAL(open)(place, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *seen = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, file, 0);
        if (seen != MAP_FAILED) control = seen;
        close(file);
    }
    if (watched && *watched && log) {
        int low = REAL(open)(log, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (low >= 0) { /* out of the way of programs that count their files */
            notes = fcntl(low, F_DUPFD_CLOEXEC, 700);
            close(low);
        }
    }
}

static int is_watched_path(const char *path) { return notes >= 0 && path && strstr(path, watched) != NULL; }

/* Whether a file is watched: a regular one whose path has the word in it. */
static int is_watched(int fd, struct stat *now) {
    char link[64], path[4096];
    if (notes < 0 || fd == notes || fstat(fd, now) != 0 || !S_ISREG(now->st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return strstr(path, watched) != NULL;
}

static void put(struct note *note, const void *old, const void *new) {
    int before = errno;
    struct iovec parts[3] = {{note, sizeof *note},
                             {(void *)old, (size_t)note->n_old},
                             {(void *)new, note->zeros ? 0 : (size_t)note->n_new}};
    REAL(writev)(notes, parts, 3);
    errno = before;
}

static void say(int kind, uint64_t file, int64_t offset, int64_t size) {
    struct note note = {MAGIC, kind, 0, file, offset, size, 0, 0};
    put(&note, NULL, NULL);
}

static int all_zero(const char *bytes, size_t n) {
    return n == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

/* Note a write that comes; returns how many bytes of it may be written, or -1 with errno. */
static ssize_t note_write(int fd, const void *bytes, size_t n, off_t offset, const struct stat *now) {
    int deny = control->deny;
    if (deny == EROFS || (deny == ENOSPC && offset >= now->st_size)) {
        errno = deny;
        return -1;
    }
    if (deny == ENOSPC && offset + (off_t)n > now->st_size) n = now->st_size - offset;
    int64_t n_old = offset < now->st_size ? now->st_size - offset : 0;
    if (n_old > (int64_t)n) n_old = n;
    char few[16384], *old = n_old > (int64_t)sizeof few ? malloc(n_old) : few;
    if (old && n_old) {
        ssize_t got = pread(fd, old, n_old, offset);
        if (got < n_old) memset(old + (got < 0 ? 0 : got), 0, n_old - (got < 0 ? 0 : got));
    }
    struct note note = {MAGIC, WRITTEN, all_zero(bytes, n), now->st_ino, offset, now->st_size, n_old, n};
    if (old) put(&note, old, bytes);
    if (old && old != few) free(old);
    return n;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset) {
    struct stat now;
    ssize_t may = n;
    if (is_watched(fd, &now) && (may = note_write(fd, bytes, n, offset, &now)) < 0) return -1;
    return REAL(pwrite)(fd, bytes, may, offset);
}
ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t offset) { return pwrite(fd, bytes, n, offset); }

ssize_t write(int fd, const void *bytes, size_t n) {
    struct stat now;
    ssize_t may = n;
    if (is_watched(fd, &now)) {
        off_t at = fcntl(fd, F_GETFL) & O_APPEND ? now.st_size : lseek(fd, 0, SEEK_CUR);
        if ((may = note_write(fd, bytes, n, at, &now)) < 0) return -1;
    }
    return REAL(write)(fd, bytes, may);
}

/* Several pieces are written one after the other, each as a write of its own. */
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t offset) {
    struct stat now;
    if (!is_watched(fd, &now)) return REAL(pwritev)(fd, parts, n, offset);
    ssize_t total = 0;
    for (int at = 0; at < n; at++) {
        ssize_t done = pwrite(fd, parts[at].iov_base, parts[at].iov_len, offset + total);
        if (done < 0) return total ? total : -1;
        total += done;
        if ((size_t)done < parts[at].iov_len) break;
    }
    return total;
}
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off_t offset) { return pwritev(fd, parts, n, offset); }

ssize_t writev(int fd, const struct iovec *parts, int n) {
    struct stat now;
    if (!is_watched(fd, &now)) return REAL(writev)(fd, parts, n);
    ssize_t total = 0;
    for (int at = 0; at < n; at++) {
        ssize_t done = write(fd, parts[at].iov_base, parts[at].iov_len);
        if (done < 0) return total ? total : -1;
        total += done;
        if ((size_t)done < parts[at].iov_len) break;
    }
    return total;
}

int ftruncate(int fd, off_t size) {
    struct stat now;
    if (is_watched(fd, &now)) {
        if (control->deny == EROFS || (control->deny == ENOSPC && size > now.st_size)) {
            errno = control->deny;
            return -1;
        }
        int64_t n_old = size < now.st_size ? now.st_size - size : 0;
        char *old = n_old ? malloc(n_old) : NULL;
        if (old && pread(fd, old, n_old, size) < n_old) n_old = 0;
        struct note note = {MAGIC, CUT, 1, now.st_ino, size, now.st_size, old ? n_old : 0, 0};
        put(&note, old, NULL);
        free(old);
    }
    return REAL(ftruncate)(fd, size);
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int posix_fallocate(int fd, off_t offset, off_t n) {
    struct stat now;
    if (control->deny && is_watched(fd, &now)) return control->deny;
    return REAL(posix_fallocate)(fd, offset, n);
}
int posix_fallocate64(int fd, off_t offset, off_t n) { return posix_fallocate(fd, offset, n); }

/* What was written before the flush began is on the disk when it ends. */
static int flushed(int fd, int (*flush)(int)) {
    struct stat now, so_far;
    int is = is_watched(fd, &now) && fstat(notes, &so_far) == 0;
    if (is && control->fatal) kill(getpid(), SIGKILL);
    int result = flush(fd);
    if (is && result == 0) say(FLUSHED, now.st_ino, so_far.st_size, now.st_size);
    return result;
}
int fsync(int fd) { return flushed(fd, REAL(fsync)); }
int fdatasync(int fd) { return flushed(fd, REAL(fdatasync)); }

/* A file that begins anew is another file: what was noted of the old one is not taken back. */
static void note_gone(int folder, const char *path) {
    struct stat now;
    if (fstatat(folder, path, &now, 0) == 0 && S_ISREG(now.st_mode)) say(GONE, now.st_ino, 0, now.st_size);
}

static int may_open(int folder, const char *path, int flags) {
    if (!is_watched_path(path)) return 1;
    if (control->deny == EROFS && (flags & (O_WRONLY | O_RDWR | O_CREAT))) {
        errno = EROFS;
        return 0;
    }
    if (control->deny == ENOSPC && (flags & O_CREAT) && faccessat(folder, path, F_OK, 0) != 0) {
        errno = ENOSPC;
        return 0;
    }
    if (flags & O_TRUNC) note_gone(folder, path);
    return 1;
}

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, last); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }
int open(const char *path, int flags, ...) {
    MODE(flags, flags)
    return may_open(AT_FDCWD, path, flags) ? REAL(open)(path, flags, mode) : -1;
}
int open64(const char *path, int flags, ...) {
    MODE(flags, flags)
    return may_open(AT_FDCWD, path, flags) ? REAL(open)(path, flags | O_LARGEFILE, mode) : -1;
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags, flags)
    return may_open(folder, path, flags) ? REAL(openat)(folder, path, flags, mode) : -1;
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags, flags)
    return may_open(folder, path, flags) ? REAL(openat)(folder, path, flags | O_LARGEFILE, mode) : -1;
}

int unlink(const char *path) {
    if (notes >= 0) note_gone(AT_FDCWD, path);
    return REAL(unlink)(path);
}
int unlinkat(int folder, const char *path, int flags) {
    if (notes >= 0 && !(flags & AT_REMOVEDIR)) note_gone(folder, path);
    return REAL(unlinkat)(folder, path, flags);
}
int rename(const char *from, const char *to) {
    struct stat one, other;
    if (notes >= 0 && stat(to, &other) == 0 && stat(from, &one) == 0 && one.st_ino != other.st_ino)
        note_gone(AT_FDCWD, to);
    return REAL(rename)(from, to);
}

/* The wall clock; what counts time that passes stays as it is. */
int clock_gettime(clockid_t which, struct timespec *now) {
    int result = REAL(clock_gettime)(which, now);
    if (result == 0 && control->clock_ns && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + control->clock_ns;
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = REAL(gettimeofday)(now, zone);
    if (result == 0) {
        int64_t us = (int64_t)now->tv_sec * 1000000 + now->tv_usec + control->clock_ns / 1000;
        now->tv_sec = us / 1000000;
        now->tv_usec = us % 1000000;
    }
    return result;
}
time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
