/* Chains of processes, each of which forks, leaves its session and ends: quicker than /proc can be read. A chain that
   was broken is begun anew by the others, so that it takes one stroke that hits all of them. SIGTERM is not heard.
   They end when argv[1] is removed. Never more than CHAINS go on: a link whose turn has been given away ends. */
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHAINS 8
#define BROKEN_USEC 3000

struct chain {
    long turn;
    long long beat;
};

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000LL + at.tv_nsec / 1000;
}

int main(int argc, char **argv) {
    struct chain *chains = mmap(0, CHAINS * sizeof *chains, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int own = 0;
    long turn = 0;
    if (argc < 2 || chains == MAP_FAILED) return 1;
    signal(SIGTERM, SIG_IGN);
    while (access(argv[1], F_OK) == 0 && chains[own].turn == turn) {
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
        if (fork() > 0) _exit(0);
        setsid();
    }
    return 0;
}
