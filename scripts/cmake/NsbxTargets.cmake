# The functions by which a folder says what it builds. Includes are written relative to core/ and lua/
# ("base/err.h", "bind/bind.h"); tests also see spec/native.

find_library(NSBX_UV_SHARED uv REQUIRED)
find_library(NSBX_UV_STATIC libuv_a.a REQUIRED)
find_library(NSBX_JANSSON_SHARED jansson REQUIRED)
find_library(NSBX_JANSSON_STATIC libjansson.a REQUIRED)
find_library(NSBX_LUA_SHARED lua5.4 REQUIRED)
find_path(NSBX_LUA_INCLUDE lua.h PATH_SUFFIXES lua5.4 REQUIRED)

# The libraries from outside. A program that is linked statically (NSBX_STATIC_LINK) gets the archives, every other
# one the shared objects, so that a layer names its library once and need not know in which program it ends.
function(nsbx_outside_library name shared static)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE
        $<IF:$<BOOL:$<TARGET_PROPERTY:NSBX_STATIC_LINK>>,${static},${shared}>)
endfunction()
nsbx_outside_library(nsbx_uv ${NSBX_UV_SHARED} ${NSBX_UV_STATIC})
nsbx_outside_library(nsbx_jansson ${NSBX_JANSSON_SHARED} ${NSBX_JANSSON_STATIC})
find_package(Threads REQUIRED)
target_link_libraries(nsbx_uv INTERFACE Threads::Threads)

add_library(nsbx_lua INTERFACE)
target_include_directories(nsbx_lua SYSTEM INTERFACE ${NSBX_LUA_INCLUDE})
target_link_libraries(nsbx_lua INTERFACE ${NSBX_LUA_SHARED})

# nsbx_layer(nsbx_loop SOURCES loop.c … DEPENDS nsbx_base nsbx_codec nsbx_uv): a static library.
function(nsbx_layer name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
    add_library(${name} STATIC ${arg_SOURCES})
    target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR}/lua)
    target_link_libraries(${name} PUBLIC ${arg_DEPENDS})
endfunction()

# nsbx_program(nsbx-agent STATIC SOURCES main.c DEPENDS nsbx_agent_core INSTALL libexec/nsbx): an executable in
# <build>/bin. STATIC: one static position independent file wherever the sanitizers allow it.
function(nsbx_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "STATIC" "INSTALL" "SOURCES;DEPENDS")
    add_executable(${name} ${arg_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR}/lua)
    target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
    if(arg_STATIC AND NOT NSBX_SANITIZE AND NOT NSBX_COVERAGE AND NOT NSBX_FUZZ)
        set_target_properties(${name} PROPERTIES NSBX_STATIC_LINK ON)
        # Neither ON nor OFF: CMake would add -pie or -no-pie, and either undoes -static-pie.
        set_property(TARGET ${name} PROPERTY POSITION_INDEPENDENT_CODE)
        target_compile_options(${name} PRIVATE -fPIE)
        # The linker says of each libc function that wants shared objects at run time that it is there (libuv has
        # them for what the agent never calls); scripts/check makes sure that no code of ours uses one.
        target_link_options(${name} PRIVATE -static-pie -Wl,--no-warnings)
    endif()
    if(arg_INSTALL)
        install(TARGETS ${name} DESTINATION ${arg_INSTALL})
    endif()
endfunction()

# nsbx_native_test(buf_test [AGENT] [BULK] [TIMEOUT seconds] DEPENDS nsbx_base …): spec/native/buf_test.c, run by ctest, which
# wants the harness's last line: a program that ends early with status 0 has not passed. AGENT: it starts the agent,
# which it finds by $NSBX_AGENT. BULK: it moves so much that ThreadSanitizer's tenfold slowness means nothing but timeouts.
function(nsbx_native_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "AGENT;BULK" "TIMEOUT" "SOURCES;DEPENDS")
    if(arg_BULK AND NSBX_SANITIZE MATCHES "thread")
        return()
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()
    set(environment "ASAN_OPTIONS=detect_leaks=1:exitcode=99" "UBSAN_OPTIONS=print_stacktrace=1")
    add_executable(${name} ${name}.c ${arg_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR}/spec/native)
    target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
    target_compile_definitions(${name} PRIVATE SPEC_DIR="${PROJECT_SOURCE_DIR}/spec") # for what a test starts
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/spec)
    if(arg_AGENT)
        add_dependencies(${name} nsbx-agent)
        list(APPEND environment "NSBX_AGENT=$<TARGET_FILE:nsbx-agent>")
    endif()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES
        TIMEOUT ${arg_TIMEOUT}
        PASS_REGULAR_EXPRESSION "[1-9][0-9]* passed, 0 failed"
        FAIL_REGULAR_EXPRESSION "[0-9]+ passed, [1-9][0-9]* failed;Sanitizer: ;runtime error: "
        ENVIRONMENT "${environment}")
endfunction()

# nsbx_fuzz(frame DEPENDS nsbx_codec): spec/fuzz/frame_fuzz.c with its corpus in spec/fuzz/corpus/frame. Built by
# the fuzz preset only.
function(nsbx_fuzz name)
    if(NOT NSBX_FUZZ)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
    add_executable(${name}_fuzz ${name}_fuzz.c ${arg_SOURCES})
    target_include_directories(${name}_fuzz PRIVATE ${PROJECT_SOURCE_DIR}/core)
    target_link_libraries(${name}_fuzz PRIVATE ${arg_DEPENDS})
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name}_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()
