// Whether a job is for the chip of this board, by the names in its device tree.
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "job.h"

enum { MOST_NAMES = 512 };

static const char *const FAMILIES[][3] = {
    // chips that run each other's commands
    {"rk3588", "rk3588", "rk3588"}, {"rk3566", "rk3566", "rk3568"}, {"rk3568", "rk3566", "rk3568"},
    {"rk3562", "rk3562", "rk3562"}, {"rk3576", "rk3576", "rk3576"}, {"rv1103", "rv1103", "rv1106"},
    {"rv1106", "rv1103", "rv1106"},
};

int rkj_check_chip(const rkj_header *h, itg_rk_error *error) {
  const char *const *family = NULL;
  for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++)
    if (!strncmp(h->chip, FAMILIES[i][0], sizeof h->chip)) family = FAMILIES[i];
  if (!family) return rk_error(error, "rkjob: the chip '%.15s' is not known", h->chip);

  char names[MOST_NAMES + 1];
  const int fd = open("/proc/device-tree/compatible", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;  // no device tree: nothing is known
  const ssize_t size = read(fd, names, MOST_NAMES);
  close(fd);
  if (size <= 0) return 0;
  names[size] = 0;
  for (ssize_t i = 0; i < size; i++)
    if (!names[i]) names[i] = ' ';
  const char *chip = strstr(names, "rockchip,r");
  if (!chip) return 0;
  for (int k = 1; k < 3; k++) {
    char wanted[32] = "rockchip,";
    strcat(wanted, family[k]);
    if (strstr(names, wanted)) return 0;
  }
  chip += strlen("rockchip,");
  return rk_error(error, "rkjob: it is for %.15s, this board has %.*s; compile with --target",
                  h->chip, (int)strcspn(chip, " "), chip);
}
