// The plug-in of the tests.
#pragma once
#include "intaglio_plugin.h"

extern const itg_plugin itg_sample_plugin;
