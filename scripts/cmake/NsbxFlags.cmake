# Flags that every object of the project gets. NSBX_STRICT is the named warning level: gcc 12 and clang 14 both
# compile the whole tree at it without a word.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# Without this, CMake compiles executables with -fPIE but does not link them with -pie.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

set(NSBX_STRICT
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wpointer-arith
    -Wcast-qual -Wwrite-strings -Wformat=2 -Wvla -Wundef -Wimplicit-fallthrough -Wredundant-decls -Wnested-externs
    -Wfloat-equal -Wdate-time)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND NSBX_STRICT -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init)
else()
    list(APPEND NSBX_STRICT -Wcomma -Wassign-enum)
endif()
if(NSBX_WERROR)
    list(APPEND NSBX_STRICT -Werror)
endif()
add_compile_options(${NSBX_STRICT})
add_link_options(-Wl,--as-needed)

# Defined as nothing, so that a file that also says "#define _GNU_SOURCE" is no redefinition.
add_compile_definitions(_GNU_SOURCE= _FILE_OFFSET_BITS=64)
if(NSBX_TESTING)
    add_compile_definitions(NSBX_TESTING=1)
endif()

# Assertions stay on in a release: a broken invariant must not run on. Line tables only, so that a core file reads.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")

if(NSBX_HARDEN)
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|i.86")
        add_compile_options(-fcf-protection)
    endif()
    add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()
if(NSBX_SANITIZE)
    add_compile_options(-fsanitize=${NSBX_SANITIZE} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${NSBX_SANITIZE})
endif()
if(NSBX_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(NSBX_COVERAGE)
    add_compile_options(--coverage)
    add_link_options(--coverage)
endif()
