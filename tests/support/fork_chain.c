/* Chains of processes, each of which forks, leaves its session and ends: quicker than /proc can be read. A chain that
   was broken is begun anew by the others, so that it takes one stroke that hits all of them. SIGTERM is not heard.
   They end when argv[1] is removed, and after LIFE_USEC whatever became of the test. Never more than CHAINS go on: a link
   whose turn has been given away ends. A chain waits while its last UNREAPED links all await their reaper, which on a
   busy machine would else run out of pids. */
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHAINS 8
#define BROKEN_USEC 3000
#define UNREAPED 512
#define PAUSE_USEC 200
#define LIFE_USEC 120000000LL

struct chain {
    long turn;
    long long beat;
    unsigned long links;
    pid_t last[UNREAPED];
};

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000LL + at.tv_nsec / 1000;
}

static void wait_for_the_reaper(struct chain *chain, const char *leash, long long end) {
    pid_t *oldest = &chain->last[chain->links++ % UNREAPED];
    while (*oldest != 0 && kill(*oldest, 0) == 0 && access(leash, F_OK) == 0 && now() < end) {
        chain->beat = now();
        usleep(PAUSE_USEC);
    }
    *oldest = getpid();
}

int main(int argc, char **argv) {
    struct chain *chains = mmap(0, CHAINS * sizeof *chains, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int own = 0;
    long turn = 0;
    long long end = now() + LIFE_USEC;
    if (argc < 2 || chains == MAP_FAILED) return 1;
    signal(SIGTERM, SIG_IGN);
    while (access(argv[1], F_OK) == 0 && now() < end && chains[own].turn == turn) {
        chains[own].beat = now();
        for (int other = 0; other < CHAINS; other++) {
            long given = chains[other].turn;
            if (now() - chains[other].beat < BROKEN_USEC) continue;
            if (!__sync_bool_compare_and_swap(&chains[other].turn, given, given + 1)) continue;
            chains[other].beat = now();
            if (fork() == 0) {
                own = other;
                turn = given + 1;
                break;
            }
        }
        wait_for_the_reaper(&chains[own], argv[1], end);
        if (fork() > 0) _exit(0);
        setsid();
    }
    return 0;
}
