# For 64-bit Android by Google's NDK (r26 or newer), whose folder ANDROID_NDK names. Not tested: no NDK was at hand.
#   cmake -S . -B build-android --toolchain cmake/toolchains/android-ndk-arm64.cmake -DINTAGLIO_COMPILER=OFF -DINTAGLIO_TESTS=OFF
# ANDROID_ABI=armeabi-v7a builds for 32-bit ARM. ANDROID_PLATFORM is the oldest Android that the library runs on.
if(NOT ANDROID_NDK)
  set(ANDROID_NDK "$ENV{ANDROID_NDK}")
endif()
set(INTAGLIO_NDK_TOOLCHAIN "${ANDROID_NDK}/build/cmake/android.toolchain.cmake")
if(NOT EXISTS "${INTAGLIO_NDK_TOOLCHAIN}")
  message(FATAL_ERROR "No Android NDK in '${ANDROID_NDK}'; set the environment variable ANDROID_NDK to its folder")
endif()
if(NOT ANDROID_ABI)
  set(ANDROID_ABI arm64-v8a)
endif()
if(NOT ANDROID_PLATFORM)
  set(ANDROID_PLATFORM android-24)
endif()
include("${INTAGLIO_NDK_TOOLCHAIN}")
