<?php

/** What `run` puts where Composer would: an autoloader of the generated classes, and of Debian's libraries. */

declare(strict_types=1);

require_once 'GuzzleHttp/autoload.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Flowtrail\\')) {
        require __DIR__ . '/../lib/' . strtr(substr($class, strlen('Flowtrail\\')), '\\', '/') . '.php';
    }
});
